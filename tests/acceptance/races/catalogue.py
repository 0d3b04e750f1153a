"""The races, in the order of the page, and the tests that run each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ONE_PROCESS = "tests/integration/races"
WORKERS = "tests/acceptance/races"

NO_RECORD = "Celery alone keeps no record of a call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """One way to pay twice, too little, or not at all.

    Attributes:
        slug: Its name in `measured.json`.
        title: Its heading on the page.
        here: What the tests below assert of Fencepost, as in the table.
        tests: Where they are.
        right: How many payments there should be, where no number says it.
        why_not_plain: Why Celery alone has no such race to measure, if it hasn't.
    """

    slug: str
    title: str
    here: str
    tests: tuple[str, ...]
    right: str | None = None
    why_not_plain: str | None = None


def _one(name: str) -> str:
    return f"{ONE_PROCESS}/{name}"


def _fleet(name: str) -> str:
    return f"{WORKERS}/test_workers.py::{name}"


ONCE = "1"
ONCE_OR_PARKED = "1; blind: 1, parked"
PARKED_BLIND = "1; blind: 0, parked"

CATALOGUE: dict[str, tuple[Race, ...]] = {
    "Answers": (
        Race(
            slug="answer-lost",
            title="The answer is lost after success",
            here=ONCE_OR_PARKED,
            tests=(
                _one("test_answers.py::test_landed_without_a_good_answer"),
                _one("test_answers.py::test_no_good_answer_from_a_blind_sink"),
            ),
        ),
        Race(
            slug="error-after-success",
            title="An error after success",
            here=ONCE_OR_PARKED,
            tests=(
                _one("test_answers.py::test_landed_without_a_good_answer"),
                _one("test_answers.py::test_no_good_answer_from_a_blind_sink"),
            ),
        ),
        Race(
            slug="error-before-anything",
            title="An error before anything happened",
            here=PARKED_BLIND,
            tests=(
                _one("test_answers.py::test_an_error_before_anything_happened"),
                _one("test_answers.py::test_no_good_answer_from_a_blind_sink"),
            ),
        ),
        Race(
            slug="late-landing",
            title="The call lands after its time-out",
            here=ONCE_OR_PARKED,
            tests=(
                _one("test_answers.py::test_a_call_that_lands_after_its_time_out"),
                _one("test_answers.py::test_a_late_call_at_a_blind_sink"),
            ),
        ),
        Race(
            slug="in-progress",
            title="The provider says that it is at it",
            here=ONCE,
            tests=(_one("test_answers.py::test_in_progress_is_no_refusal"),),
        ),
        Race(
            slug="declined-then-topped-up",
            title="Declined, and tried again after a top-up",
            here=ONCE,
            tests=(
                _one("test_answers.py::test_refused_and_tried_again_after_a_top_up"),
                _one("test_answers.py::test_a_refusal_is_remembered_under_its_key"),
            ),
        ),
    ),
    "Crashes": (
        Race(
            slug="killed-before-the-call",
            title="Killed before the call",
            here=PARKED_BLIND,
            tests=(_one("test_crashes.py::test_killed_before_the_call"),),
        ),
        Race(
            slug="killed-after-the-call",
            title="Killed after the call",
            here=ONCE_OR_PARKED,
            tests=(
                _one("test_crashes.py::test_killed_after_the_call"),
                _fleet("test_a_worker_is_killed_after_the_call"),
            ),
        ),
        Race(
            slug="killed-after-it-was-recorded",
            title="Killed after the outcome was recorded",
            here=ONCE,
            tests=(_one("test_crashes.py::test_killed_after_it_was_recorded"),),
        ),
        Race(
            slug="partial-refund-then-crash",
            title="Killed between two partial refunds",
            here="2 of 2",
            tests=(_one("test_crashes.py::test_killed_between_two_partial_refunds"),),
        ),
        Race(
            slug="confirmation-unanswered",
            title="The database is lost while the outcome is recorded",
            here=ONCE_OR_PARKED,
            tests=(
                _one("test_crashes.py::test_the_answer_of_the_confirmation_is_lost"),
                _one("test_crashes.py::test_the_connection_is_cut_before_the_confirmation"),
            ),
            why_not_plain=NO_RECORD,
        ),
        Race(
            slug="code-behind-it-fails",
            title="The code behind the payment fails",
            here="1, parked",
            tests=(_one("test_crashes.py::test_code_that_fails_behind_the_effect"),),
        ),
        Race(
            slug="clock-set-back",
            title="The worker's clock is wrong",
            here=ONCE,
            tests=(
                _one("test_crashes.py::test_the_workers_clock_is_set"),
                _one("test_crashes.py::test_a_clock_set_back_doesnt_renew_an_expired_key"),
            ),
            why_not_plain="Celery alone doesn't know the age of a key",
        ),
    ),
    "Freezes": (
        Race(
            slug="frozen-before-the-call",
            title="Frozen before the call",
            here="1; blind: parked; with a [limit](#frozen-before-the-call)",
            tests=(
                _one("test_freezes.py::test_frozen_before_the_call"),
                _one("test_freezes.py::test_frozen_before_the_call_and_aware_of_it"),
                _one("test_freezes.py::test_frozen_on_an_open_connection"),
                _one("test_freezes.py::test_where_our_job_ends_a_freeze_behind_the_last_look"),
                _one("test_freezes.py::test_frozen_while_the_request_is_prepared"),
                _fleet("test_a_worker_freezes_before_it_sends_and_wakes_up"),
            ),
        ),
        Race(
            slug="frozen-during-the-call",
            title="Lost while the request is under way",
            here=ONCE,
            tests=(_one("test_freezes.py::test_lost_during_the_call"),),
        ),
        Race(
            slug="frozen-after-the-call",
            title="Frozen after the call",
            here=ONCE_OR_PARKED,
            tests=(_one("test_freezes.py::test_frozen_after_the_call"),),
        ),
        Race(
            slug="takeover-during-a-probe",
            title="Taken over during a probe",
            here=ONCE,
            tests=(_one("test_freezes.py::test_taken_over_during_a_probe"),),
        ),
        Race(
            slug="probe-while-in-flight",
            title="A probe while the call is in flight",
            here=ONCE,
            tests=(_one("test_freezes.py::test_a_probe_while_the_call_is_in_flight"),),
        ),
        Race(
            slug="probe-fails",
            title="The probe fails, or can't tell",
            here="1, parked",
            tests=(
                _one("test_freezes.py::test_a_probe_that_fails_again_and_again"),
                _one("test_freezes.py::test_a_probe_that_cannot_tell"),
            ),
        ),
    ),
    "Keys": (
        Race(
            slug="key-expired",
            title="The provider has forgotten the key",
            here="1, or 1 and parked",
            tests=(
                _one("test_keys.py::test_an_expired_key_is_not_sent_again"),
                _one("test_keys.py::test_past_its_keys_retention_a_probe_is_asked"),
            ),
        ),
        Race(
            slug="key-for-another-amount",
            title="The same key with another amount",
            here=ONCE,
            tests=(_one("test_keys.py::test_a_key_for_another_amount"),),
        ),
        Race(
            slug="two-executions-one-order",
            title="Two executions refund one order",
            here=ONCE,
            tests=(_one("test_keys.py::test_one_order_from_two_executions"),),
        ),
        Race(
            slug="key-of-what-was-undone",
            title="The key of a charge that was given back",
            here="0, and says so",
            tests=(
                _one("test_keys.py::test_an_effect_that_was_undone_is_not_there_any_more"),
                _one("test_keys.py::test_nobody_builds_on_an_effect_that_is_being_undone"),
            ),
        ),
        Race(
            slug="two-forms-of-one-amount",
            title="Two forms of one amount",
            here="1, or 1 and parked",
            tests=(
                _one("test_keys.py::test_two_forms_of_one_amount"),
                _one("test_keys.py::test_whole_cents_have_one_form"),
            ),
            why_not_plain="Celery alone compares no requests",
        ),
    ),
    "Code that changes its mind": (
        Race(
            slug="deploy-changes-the-request",
            title="A deploy changes the request",
            here="1, parked",
            tests=(_one("test_keys.py::test_a_deploy_changes_the_request"),),
        ),
        Race(
            slug="model-decides-otherwise",
            title="A model decides another amount the second time",
            here=ONCE,
            tests=(
                _one("test_keys.py::test_a_model_decides_otherwise_the_second_time"),
                _one("test_keys.py::test_a_model_whose_answer_was_not_recorded_is_asked_again"),
                _one("test_keys.py::test_a_model_asked_inside_of_the_paying_step"),
            ),
        ),
        Race(
            slug="second-run-does-not-pay",
            title="The second run doesn't come to pay",
            here="1, parked",
            tests=(
                _one("test_keys.py::test_the_second_run_does_not_pay_at_all"),
                _one("test_keys.py::test_the_second_run_fails_before_it_comes_to_pay"),
                _one("test_tasks.py::test_a_tasks_second_run_does_not_come_to_pay"),
            ),
        ),
        Race(
            slug="second-provider",
            title="A second provider when the first doesn't answer",
            here="1, or 1 and parked",
            tests=(
                _one("test_keys.py::test_a_fallback_to_a_second_provider"),
                _one("test_keys.py::test_a_fallback_because_the_ledger_is_away"),
            ),
        ),
    ),
    "Messages and starts": (
        Race(
            slug="duplicate-message",
            title="The message comes twice",
            here=ONCE,
            tests=(_fleet("test_a_message_comes_six_times_while_the_call_is_under_way"),),
        ),
        Race(
            slug="visibility-timeout",
            title="The call outlives the visibility timeout",
            here=ONCE,
            tests=(_fleet("test_a_call_that_takes_longer_than_the_visibility_timeout"),),
        ),
        Race(
            slug="message-lost",
            title="The message is lost after the commit",
            here=ONCE,
            tests=(_fleet("test_the_message_of_a_committed_start_is_lost"),),
        ),
        Race(
            slug="redis-flushed",
            title="Redis is emptied in mid-call",
            here="2 of 2",
            tests=(_fleet("test_redis_forgets_everything_in_mid_call"),),
        ),
        Race(
            slug="double-click",
            title="Ten clicks at once",
            here=ONCE,
            tests=(_fleet("test_ten_clicks_at_once"),),
        ),
        Race(
            slug="start-rolled-back",
            title="Started in a transaction that rolls back",
            here="0",
            tests=(_fleet("test_a_start_whose_transaction_rolls_back"),),
        ),
    ),
    "Undoing": (
        Race(
            slug="charge-after-its-refund",
            title="A charge that lands after its refund",
            here="0 left",
            right="0 left",
            tests=(
                _one("test_undoing.py::test_a_charge_that_lands_after_its_refund"),
                _one("test_undoing.py::test_a_charge_in_doubt_is_not_undone_as_if_it_were_nothing"),
            ),
        ),
        Race(
            slug="refund-in-doubt",
            title="The refund itself is in doubt",
            here=ONCE_OR_PARKED,
            tests=(
                _one("test_undoing.py::test_the_refund_itself_is_in_doubt"),
                _one("test_undoing.py::test_the_refund_is_in_doubt_at_a_blind_sink"),
                _one("test_undoing.py::test_killed_while_giving_back"),
            ),
        ),
        Race(
            slug="more-than-is-left",
            title="Two partial refunds of more than is left",
            here=ONCE,
            tests=(
                _one("test_undoing.py::test_two_partial_refunds_of_more_than_is_left"),
                _one("test_undoing.py::test_two_partial_refunds_where_the_provider_adds_up"),
            ),
        ),
    ),
    "Webhooks": (
        Race(
            slug="webhook-before-the-response",
            title="The webhook before the response",
            here=ONCE,
            tests=(
                _one("test_webhooks.py::test_the_webhook_comes_before_the_response"),
                _one("test_webhooks.py::test_the_webhook_comes_and_the_response_never"),
                _one("test_webhooks.py::test_the_webhook_comes_after_the_response"),
            ),
        ),
        Race(
            slug="webhook-at-the-same-moment",
            title="Webhook and response in the same moment",
            here=ONCE,
            tests=(_one("test_webhooks.py::test_webhook_and_response_credit_in_the_same_moment"),),
        ),
        Race(
            slug="webhook-twice",
            title="The webhook twice",
            here=ONCE,
            tests=(_one("test_webhooks.py::test_the_webhook_comes_twice"),),
        ),
        Race(
            slug="webhook-pays-too",
            title="The webhook's handler pays, too",
            here=ONCE,
            tests=(_one("test_webhooks.py::test_the_webhooks_handler_pays_under_the_same_key"),),
        ),
    ),
    "People": (
        Race(
            slug="two-people-decide",
            title="Two people decide at once",
            here="1 decision",
            right="1 decision",
            tests=(
                _one("test_people.py::test_two_people_decide_at_once"),
                _one("test_people.py::test_nobody_decides_while_it_may_be_called"),
            ),
            why_not_plain="Celery alone has nothing that waits for a decision",
        ),
        Race(
            slug="zombie-after-the-decision",
            title="A decision while a zombie may still confirm",
            here=ONCE,
            tests=(
                _one("test_people.py::test_a_person_decides_while_a_zombie_may_still_confirm"),
                _one("test_people.py::test_a_person_says_no_and_the_zombie_wakes_up_aware"),
            ),
            why_not_plain="Celery alone has nothing that waits for a decision",
        ),
    ),
}


def races() -> Iterator[Race]:
    """All of them, in the order of the page."""
    for group in CATALOGUE.values():
        yield from group
