"""The Celery settings that the protocol wants: set where unset, checked where they are the user's.

SQL is the truth and Celery is transport, so none of these can lose or double an effect. They
decide how soon work goes on, and how much needless work a fleet does.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from celery import Celery

from fencepost.findings import Finding, Rule, Severity

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

VISIBILITY = "broker_transport_options['visibility_timeout']"


ERROR, WARNING = Severity.ERROR, Severity.WARNING

UNSAFE_CONTENT = Rule(
    "settings.unsafe-content",
    ERROR,
    "Workers accept pickle or YAML.",
    "Whoever can write to the broker can run code in the workers.",
    "set accept_content = ['json']",
)
VISIBILITY_TIMEOUT = Rule(
    "settings.visibility-timeout",
    ERROR,
    "The visibility timeout is below the lease time.",
    "Celery delivers again what a healthy owner still runs, for as long as it runs.",
    "set at least the lease TTL",
)
NO_RESULT_BACKEND = Rule(
    "settings.no-result-backend",
    ERROR,
    "A saga fans out, and there is no result backend.",
    "Fan-outs are published as Celery chords, which need one.",
    "set result_backend to a Redis URL",
)
ALWAYS_EAGER = Rule(
    "settings.always-eager",
    ERROR,
    "Tasks run inside of the caller.",
    "Nothing is durable then.",
    "unset task_always_eager",
)
TASK_OVERRIDE = Rule(
    "settings.task-override",
    ERROR,
    "An option of Fencepost's own tasks was overridden.",
    "An early ack loses the hint, and Celery's own redelivery loops on poison.",
    "leave the option as it is",
)
UNTESTED_BROKER = Rule(
    "settings.untested-broker",
    WARNING,
    "The broker is neither Redis nor Valkey.",
    "Fencepost is tested on those only.",
    "use Redis or Valkey",
)
LONG_VISIBILITY_TIMEOUT = Rule(
    "settings.long-visibility-timeout",
    WARNING,
    "The visibility timeout is more than 600 s.",
    "Your other tasks wait this long after a worker is lost; sagas don't.",
    "set 60 to 120",
)
PREFETCH = Rule(
    "settings.prefetch",
    WARNING,
    "Workers prefetch more than one message.",
    "A lost worker strands what it has prefetched until the reaper finds it.",
    "set worker_prefetch_multiplier = 1",
)
EARLY_ACKS = Rule(
    "settings.early-acks",
    WARNING,
    "Your other tasks are acknowledged before they run.",
    "They are lost with their worker; Fencepost's own tasks ack late anyway.",
    "set task_acks_late = True",
)

SETTINGS_RULES: tuple[Rule, ...] = tuple(
    value for value in list(vars().values()) if isinstance(value, Rule)
)
"""All of them, in the order in which the reference has them."""


def check_settings(app: Celery, *, lease_ttl: timedelta, fans_out: bool) -> list[Finding]:
    """All findings about an app's settings at once.

    Args:
        app: The Celery app.
        lease_ttl: The fleet's lease time.
        fans_out: Whether any registered saga has a `map`.
    """
    return [*_safety(app, lease_ttl, fans_out=fans_out), *_liveness(app)]


def _found(rule: Rule, setting: str, value: object, fix: str | None = None) -> Finding:
    why = rule.why[0].lower() + rule.why[1:].rstrip(".")
    return rule.at(f"{setting} is {value}", why, fix=fix)


def _safety(app: Celery, lease_ttl: timedelta, *, fans_out: bool) -> Iterator[Finding]:
    accepted = {str(content) for content in app.conf.accept_content}
    if accepted & {"pickle", "application/x-python-serialize", "yaml", "application/x-yaml"}:
        yield _found(UNSAFE_CONTENT, "accept_content", sorted(accepted))
    timeout = _visibility_timeout(app)
    if timeout < lease_ttl.total_seconds():
        yield _found(
            VISIBILITY_TIMEOUT,
            VISIBILITY,
            f"{timeout:g} s",
            f"set at least the lease TTL ({lease_ttl.total_seconds():g} s)",
        )
    if fans_out and app.conf.result_backend in (None, "", "disabled://"):
        yield _found(NO_RESULT_BACKEND, "result_backend", "not set")
    if app.conf.task_always_eager:
        yield _found(ALWAYS_EAGER, "task_always_eager", True)
    yield from _task_overrides(app)


def _visibility_timeout(app: Celery) -> float:
    options = app.conf.broker_transport_options or {}
    return float(options.get("visibility_timeout", 3600))


def _task_overrides(app: Celery) -> Iterator[Finding]:
    task = app.tasks["fencepost.run"]
    for option in ("acks_late", "reject_on_worker_lost", "retry_on_worker_lost", "acks_on_failure"):
        wanted = TASK_OPTIONS[option]
        found = getattr(task, option, wanted)
        if bool(found) is not wanted:
            setting = f"task_annotations['fencepost.run']['{option}']"
            yield _found(TASK_OVERRIDE, setting, found, f"leave it {wanted}")


def _liveness(app: Celery) -> Iterator[Finding]:
    scheme = str(app.conf.broker_url or "").partition(":")[0]
    if scheme and scheme not in ("redis", "rediss", "sentinel", "memory"):
        yield _found(UNTESTED_BROKER, "broker_url", f"{scheme}://")
    if _visibility_timeout(app) > LONG_TIMEOUT:
        yield _found(LONG_VISIBILITY_TIMEOUT, VISIBILITY, f"{_visibility_timeout(app):g} s")
    if app.conf.worker_prefetch_multiplier != 1 and not app.conf.worker_disable_prefetch:
        multiplier = app.conf.worker_prefetch_multiplier
        yield _found(PREFETCH, "worker_prefetch_multiplier", multiplier)
    if not app.conf.task_acks_late:
        yield _found(EARLY_ACKS, "task_acks_late", False)


__all__ = [
    "SETTINGS_RULES",
    "TASK_OPTIONS",
    "Finding",
    "Severity",
    "check_settings",
    "hardened",
]
