"""What the factory must be told before it can run, and what to type when it wasn't."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from fencepost.errors import ConfigurationError

EX_CONFIG = 78
"""Exit code for a missing or wrong setting (sysexits.h)."""

EXAMPLES = {
    "FENCEPOST_DATABASE_URL": "postgresql+psycopg://user:password@localhost:5432/fencepost",
    "FENCEPOST_BROKER_URL": "redis://localhost:6379/0",
}
MEANINGS = {
    "FENCEPOST_DATABASE_URL": "the database with executions and ledger; SQLite works on one host",
    "FENCEPOST_BROKER_URL": "the Redis or Valkey that carries Celery's messages",
}


class CoordinatorSettings(BaseModel):
    """The factory's settings, each under the name of its variable.

    Attributes:
        database_url: `FENCEPOST_DATABASE_URL`; executions and ledger share it.
        broker_url: `FENCEPOST_BROKER_URL`; also Celery's result backend.
        redis_url: `FENCEPOST_REDIS_URL`, where the leases are; by default the broker.
        lease_ttl: `FENCEPOST_LEASE_TTL`, seconds until a silent owner loses its execution.
        visibility_timeout: `FENCEPOST_VISIBILITY_TIMEOUT`, seconds until the broker delivers an
            unacknowledged message again; by default what Fencepost recommends.
        unfenced: `FACTORY_UNFENCED`: run with the guards off, on a demonstration's own database.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    database_url: SecretStr = Field(validation_alias="FENCEPOST_DATABASE_URL", min_length=1)
    broker_url: SecretStr = Field(validation_alias="FENCEPOST_BROKER_URL", min_length=1)
    redis_url: SecretStr | None = Field(None, validation_alias="FENCEPOST_REDIS_URL")
    lease_ttl: float = Field(30.0, validation_alias="FENCEPOST_LEASE_TTL", ge=0.5, le=86_400)
    visibility_timeout: int | None = Field(
        None, validation_alias="FENCEPOST_VISIBILITY_TIMEOUT", ge=1
    )
    unfenced: bool = Field(False, validation_alias="FACTORY_UNFENCED")

    @property
    def database(self) -> str:
        """The database's URL, password included."""
        return self.database_url.get_secret_value()

    @property
    def broker(self) -> str:
        """The broker's URL, password included."""
        return self.broker_url.get_secret_value()

    @property
    def leases(self) -> str:
        """The URL of the Redis with the leases, password included."""
        given = self.redis_url.get_secret_value() if self.redis_url else ""
        return given or self.broker


class SettingsMissingError(ConfigurationError):
    """Variables that the factory can't do without. Fields: `missing`."""

    code = "config.missing"


def load(environ: Mapping[str, str] | None = None) -> CoordinatorSettings:
    """The settings from the environment.

    Args:
        environ: In place of the process's own.

    Raises:
        SettingsMissingError: Names every variable that is missing, and what to type.
        ConfigurationError: Only that some have values that can't be used.
    """
    given = os.environ if environ is None else environ
    names = [str(field.validation_alias) for field in CoordinatorSettings.model_fields.values()]
    try:
        return CoordinatorSettings.model_validate(
            {name: given[name] for name in names if given.get(name, "").strip()}
        )
    except ValidationError as problem:
        errors = problem.errors(include_input=False, include_url=False)
    missing = [str(error["loc"][0]) for error in errors if error["type"] == "missing"]
    invalid = [
        f"{error['loc'][0]}: {error['msg']}" for error in errors if error["type"] != "missing"
    ]
    if missing:
        raise _missing(missing, invalid)
    raise ConfigurationError("settings that can't be used: " + "; ".join(invalid))


def load_database_url(environ: Mapping[str, str] | None = None) -> str:
    """The database's URL alone, for what needs no broker.

    Raises:
        SettingsMissingError: It isn't set.
    """
    given = os.environ if environ is None else environ
    url = given.get("FENCEPOST_DATABASE_URL", "").strip()
    if not url:
        raise _missing(["FENCEPOST_DATABASE_URL"], [])
    return url


def _missing(variables: list[str], invalid: list[str]) -> SettingsMissingError:
    said = [f"  {name}  ({MEANINGS[name]})" for name in variables]
    typed = [f"  export {name}={EXAMPLES[name]}" for name in variables]
    lines = [
        "the release factory needs settings that are not there:",
        *said,
        *(f"and can't use {line}" for line in invalid),
        "Type, with your own servers:",
        *typed,
        "or see it run without any servers of yours: python -m coordinator demo",
    ]
    fields: dict[str, Any] = {"missing": variables}
    return SettingsMissingError("\n".join(lines), **fields)
