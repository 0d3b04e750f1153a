"""A wrong environment is named by its variable, and never shown."""

from __future__ import annotations

import pytest

from fencepost import NeedsPerson
from tasks.planner import PlannerConfigurationError, PlannerSettings, plan_recovery

LIVE = {"FACTORY_PLANNER": "live", "OPENAI_API_KEY": "sk-test"}


def test_the_default_is_offline_and_needs_nothing():
    settings = PlannerSettings.from_environ({})

    assert settings.mode == "offline"
    assert settings.base_url.endswith(".invalid/v1")


def test_offline_ignores_a_key_and_a_url():
    settings = PlannerSettings.from_environ(LIVE | {"FACTORY_PLANNER": "offline"})

    assert settings == PlannerSettings()


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({"FACTORY_PLANNER": "live"}, "OPENAI_API_KEY"),
        ({"FACTORY_PLANNER": "live", "OPENAI_API_KEY": "  "}, "OPENAI_API_KEY"),
        (LIVE | {"OPENAI_API_KEY": "sk-secret\nHost: evil"}, "OPENAI_API_KEY"),
        ({"FACTORY_PLANNER": "on"}, "FACTORY_PLANNER"),
        (LIVE | {"OPENAI_BASE_URL": "ftp://host/v1"}, "OPENAI_BASE_URL"),
        (LIVE | {"OPENAI_BASE_URL": "host:99999999/v1"}, "OPENAI_BASE_URL"),
        (LIVE | {"OPENAI_BASE_URL": "https://user:sk-secret@host/v1"}, "OPENAI_BASE_URL"),
        (LIVE | {"OPENAI_BASE_URL": "https://host/v1?key=sk-secret"}, "OPENAI_BASE_URL"),
        (LIVE | {"OPENAI_BASE_URL": "https://host/v1"}, "FACTORY_PLANNER_MODEL"),
        (LIVE | {"FACTORY_PLANNER_TIMEOUT": "0"}, "FACTORY_PLANNER_TIMEOUT"),
        (LIVE | {"FACTORY_PLANNER_TIMEOUT": "soon"}, "FACTORY_PLANNER_TIMEOUT"),
        (LIVE | {"FACTORY_PLANNER_RETRIES": "-1"}, "FACTORY_PLANNER_RETRIES"),
        (LIVE | {"FACTORY_PLANNER_TOKENS": "5"}, "FACTORY_PLANNER_TOKENS"),
    ],
)
def test_a_bad_value_names_its_variable(environ, variable):
    with pytest.raises(PlannerConfigurationError) as caught:
        PlannerSettings.from_environ(environ)

    assert str(caught.value).startswith(variable + " ")
    assert caught.value.fields == {"variable": variable}
    assert "sk-secret" not in str(caught.value)


def test_openai_and_openrouter():
    assert PlannerSettings.from_environ(LIVE).base_url == "https://api.openai.com/v1"
    router = PlannerSettings.from_environ(
        LIVE
        | {
            "OPENAI_BASE_URL": "https://openrouter.ai/api/v1/",
            "FACTORY_PLANNER_MODEL": "anthropic/claude-sonnet-4",
        }
    )

    assert router.base_url == "https://openrouter.ai/api/v1"
    assert router.model == "anthropic/claude-sonnet-4"


def test_the_key_is_not_in_the_repr():
    settings = PlannerSettings.from_environ(LIVE)

    assert settings.api_key.get_secret_value() == "sk-test"
    assert "sk-test" not in repr(settings) + str(settings) + settings.model_dump_json()


def test_a_worker_without_a_key_parks_the_release(world, monkeypatch):
    monkeypatch.setenv("FACTORY_PLANNER", "live")
    ctx, failure = world.failed()

    with pytest.raises(NeedsPerson, match="OPENAI_API_KEY must be set"):
        plan_recovery(ctx, failure)
