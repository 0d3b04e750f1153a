"""Settings of the engine, from arguments or the environment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from fencepost.errors import ConfigurationError


class FencepostSettings(BaseSettings):
    """What a fleet agrees on. Each field can be set as `FENCEPOST_<NAME>`.

    Attributes:
        database_url: SQLAlchemy URL of the truth: PostgreSQL, or SQLite on a single host.
        redis_url: Where the leases are; by default the Celery broker, if that is Redis.
        redis_prefix: Put before every key.
        lease_ttl: Seconds until a silent owner loses its execution.
        max_recoveries: Takeovers without a new checkpoint before an execution is parked.
        max_effect_payload: Bytes of JSON of an effect's request or result. What is larger
            belongs into a file or object store, and its address and digest into the request.
        reaper_interval: Seconds between two looks of a worker at expired leases.
        sweep_interval: Seconds between two looks of a worker at SQL.
        start_grace: Seconds after which the first message of an execution that nobody has begun
            counts as lost. Messages that merely wait in a long queue are then sent once more.
        pool_size: Database connections kept by each process.
    """

    model_config = SettingsConfigDict(env_prefix="FENCEPOST_", extra="ignore")

    database_url: SecretStr
    redis_url: SecretStr | None = None
    redis_prefix: str = "fencepost:"
    lease_ttl: float = Field(default=30.0, ge=0.5, le=86_400.0)
    max_recoveries: int = Field(default=5, ge=1)
    max_effect_payload: int = Field(default=256 * 1024, ge=1024)
    reaper_interval: float = Field(default=0.5, gt=0.0)
    sweep_interval: float = Field(default=0.5, gt=0.0)
    start_grace: float = Field(default=10.0, gt=0.0)
    pool_size: int = Field(default=5, ge=1)

    @field_validator("redis_url", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: Any) -> Any:
        return value or None

    @property
    def ttl(self) -> timedelta:
        """`lease_ttl` as a duration."""
        return timedelta(seconds=self.lease_ttl)

    @property
    def grace(self) -> timedelta:
        """`start_grace` as a duration."""
        return timedelta(seconds=self.start_grace)


def load_settings(**given: Any) -> FencepostSettings:
    """Settings from arguments, then the environment.

    Raises:
        ConfigurationError: One is missing or out of range; names it.
    """
    try:
        return FencepostSettings(**{k: v for k, v in given.items() if v is not None})
    except ValidationError as problem:
        faults = [
            f"{error['loc'][0]} (FENCEPOST_{str(error['loc'][0]).upper()}): {error['msg']}"
            for error in problem.errors(include_input=False, include_url=False)
        ]
        raise ConfigurationError("settings: " + "; ".join(faults)) from None
