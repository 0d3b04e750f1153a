from __future__ import annotations

import pytest

from coordinator.settings import SettingsMissingError, load, load_database_url
from fencepost.errors import ConfigurationError

BOTH = {"FENCEPOST_DATABASE_URL": "sqlite:///x.db", "FENCEPOST_BROKER_URL": "redis://h/0"}


def test_all_that_is_missing_is_named_with_what_to_type() -> None:
    with pytest.raises(SettingsMissingError) as caught:
        load({})
    assert caught.value.fields["missing"] == ["FENCEPOST_DATABASE_URL", "FENCEPOST_BROKER_URL"]
    assert "export FENCEPOST_DATABASE_URL=postgresql" in str(caught.value)
    assert "export FENCEPOST_BROKER_URL=redis" in str(caught.value)
    assert "python -m coordinator demo" in str(caught.value)


def test_an_empty_variable_counts_as_missing() -> None:
    with pytest.raises(SettingsMissingError) as caught:
        load(BOTH | {"FENCEPOST_BROKER_URL": "  "})
    assert caught.value.fields["missing"] == ["FENCEPOST_BROKER_URL"]


def test_what_is_missing_and_what_is_wrong_are_told_together() -> None:
    with pytest.raises(SettingsMissingError, match="FENCEPOST_LEASE_TTL"):
        load({"FENCEPOST_LEASE_TTL": "0", "FENCEPOST_DATABASE_URL": "sqlite:///x.db"})


def test_a_value_that_can_not_be_used_is_named_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="FENCEPOST_VISIBILITY_TIMEOUT") as caught:
        load(BOTH | {"FENCEPOST_VISIBILITY_TIMEOUT": "soon"})
    assert "soon" not in str(caught.value)


def test_the_leases_are_where_the_broker_is_unless_told_otherwise() -> None:
    assert load(BOTH).leases == "redis://h/0"
    assert load(BOTH | {"FENCEPOST_REDIS_URL": ""}).leases == "redis://h/0"
    assert load(BOTH | {"FENCEPOST_REDIS_URL": "redis://h/1"}).leases == "redis://h/1"


def test_passwords_do_not_show() -> None:
    shown = repr(load(BOTH | {"FENCEPOST_BROKER_URL": "redis://:secret@h/0"}))
    assert "secret" not in shown


def test_the_database_alone_is_enough_for_what_needs_no_broker() -> None:
    assert load_database_url({"FENCEPOST_DATABASE_URL": "sqlite:///x.db"}) == "sqlite:///x.db"
    with pytest.raises(SettingsMissingError) as caught:
        load_database_url({})
    assert caught.value.fields["missing"] == ["FENCEPOST_DATABASE_URL"]
