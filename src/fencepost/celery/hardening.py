"""The Celery settings that the protocol wants: set where unset, checked where they are the user's.

SQL is the truth and Celery is transport, so none of these can lose or double an effect. They
decide how soon work goes on, and how much needless work a fleet does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from celery import Celery

TASK_OPTIONS: dict[str, Any] = {
    "acks_late": True,
    # The reaper retries, counts attempts and parks poison; Celery would loop.
    "reject_on_worker_lost": False,
    "retry_on_worker_lost": False,
    "acks_on_failure": True,
    "acks_on_timeout": True,
    "ignore_result": True,
    "track_started": True,
    "max_retries": 0,
    "serializer": "json",
    # Celery writes what a task returns into logs and events. Id and status, which come first in
    # our reply, fit in; a saga's result and error, which may be confidential, don't.
    "resultrepr_maxsize": 80,
}
"""Options of Fencepost's own tasks; they override the app's settings for these tasks only."""


def hardened(lease_ttl: timedelta) -> dict[str, Any]:
    """Defaults for an app that says nothing else."""
    return {
        "task_acks_late": True,
        "task_reject_on_worker_lost": False,
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": True,
        "broker_transport_options": {
            "visibility_timeout": max(60, int(2 * lease_ttl.total_seconds())),
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 15,
        },
        "broker_connection_retry_on_startup": True,
        "broker_channel_error_retry": True,
        "broker_pool_acquire_timeout": 10,
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "result_chord_expires": 86_400,
        # The middle, as for our own: on Redis no priority would mean the most urgent.
        "task_default_priority": 4,
        "accept_content": ["json"],
        "result_accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "worker_send_task_events": True,
        "task_send_sent_event": True,
        "task_track_started": True,
    }


LONG_TIMEOUT = 600
"""Seconds of visibility timeout above which a lost worker is felt."""


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that the protocol doesn't want.

    Attributes:
        code: Stable identifier.
        setting: The setting's name in the Celery app.
        found: Its value.
        fix: What to set.
        why: What goes wrong otherwise.
    """

    code: str
    severity: Severity
    setting: str
    found: str
    fix: str
    why: str

    def __str__(self) -> str:
        return (
            f"{self.severity}: {self.setting} is {self.found}; {self.fix}: {self.why} [{self.code}]"
        )


def check_settings(app: Celery, *, lease_ttl: timedelta, fans_out: bool) -> list[Finding]:
    """All findings about an app's settings at once.

    Args:
        app: The Celery app.
        lease_ttl: The fleet's lease time.
        fans_out: Whether any registered saga has a `map`.
    """
    return [*_safety(app, lease_ttl, fans_out=fans_out), *_liveness(app)]


def _safety(app: Celery, lease_ttl: timedelta, *, fans_out: bool) -> Iterator[Finding]:
    accepted = {str(content) for content in app.conf.accept_content}
    loose = accepted & {"pickle", "application/x-python-serialize", "yaml", "application/x-yaml"}
    if loose:
        yield Finding(
            "settings.unsafe-content",
            Severity.ERROR,
            "accept_content",
            str(sorted(accepted)),
            "set ['json']",
            "whoever can write to the broker can run code in the workers",
        )
    timeout = (app.conf.broker_transport_options or {}).get("visibility_timeout", 3600)
    if timeout < lease_ttl.total_seconds():
        yield Finding(
            "settings.visibility-timeout",
            Severity.ERROR,
            "broker_transport_options['visibility_timeout']",
            f"{timeout} s",
            f"set at least the lease TTL ({lease_ttl.total_seconds():g} s)",
            "Celery delivers again what a healthy owner still runs, for as long as it runs",
        )
    if fans_out and app.conf.result_backend in (None, "", "disabled://"):
        yield Finding(
            "settings.no-result-backend",
            Severity.ERROR,
            "result_backend",
            "not set",
            "set a Redis URL",
            "fan-outs are published as Celery chords, which need one",
        )
    if app.conf.task_always_eager:
        yield Finding(
            "settings.always-eager",
            Severity.ERROR,
            "task_always_eager",
            "True",
            "unset it",
            "tasks run inside the caller: nothing is durable",
        )
    yield from _task_overrides(app)


def _task_overrides(app: Celery) -> Iterator[Finding]:
    task = app.tasks["fencepost.run"]
    for option in ("acks_late", "reject_on_worker_lost", "retry_on_worker_lost", "acks_on_failure"):
        wanted = TASK_OPTIONS[option]
        found = getattr(task, option, wanted)
        if bool(found) is not wanted:
            yield Finding(
                "settings.task-override",
                Severity.ERROR,
                f"task_annotations['fencepost.run']['{option}']",
                str(found),
                f"leave it {wanted}",
                "an early ack loses the hint, and Celery's own redelivery loops on poison",
            )


def _liveness(app: Celery) -> Iterator[Finding]:
    scheme = str(app.conf.broker_url or "").partition(":")[0]
    if scheme and scheme not in ("redis", "rediss", "sentinel", "memory"):
        yield Finding(
            "settings.untested-broker",
            Severity.WARNING,
            "broker_url",
            f"{scheme}://",
            "use Redis or Valkey",
            "Fencepost is tested on those only",
        )
    timeout = (app.conf.broker_transport_options or {}).get("visibility_timeout", 3600)
    if timeout > LONG_TIMEOUT:
        yield Finding(
            "settings.long-visibility-timeout",
            Severity.WARNING,
            "broker_transport_options['visibility_timeout']",
            f"{timeout} s",
            "set 60 to 120",
            "your other tasks wait this long after a worker is lost; sagas don't",
        )
    if app.conf.worker_prefetch_multiplier != 1 and not app.conf.worker_disable_prefetch:
        yield Finding(
            "settings.prefetch",
            Severity.WARNING,
            "worker_prefetch_multiplier",
            str(app.conf.worker_prefetch_multiplier),
            "set 1",
            "a lost worker strands what it has prefetched until the reaper finds it",
        )
    if not app.conf.task_acks_late:
        yield Finding(
            "settings.early-acks",
            Severity.WARNING,
            "task_acks_late",
            "False",
            "set True",
            "your other tasks are lost with their worker; Fencepost's own tasks ack late anyway",
        )
