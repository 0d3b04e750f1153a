"""Where the factory keeps its things, from the environment."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class FactorySettings(BaseSettings):
    """Read anew at each use, so that a changed environment is seen.

    Attributes:
        database_url: `FENCEPOST_DATABASE_URL`, the same database as the engine's. There is no
            default: two parts of a fleet on two databases would be worse than an error.
        staging_dir: `FACTORY_STAGING_DIR`; shared by all workers.
        publish_dir: `FACTORY_PUBLISH_DIR`; shared by all workers.
    """

    model_config = SettingsConfigDict(extra="ignore", populate_by_name=True)

    database_url: str = Field("", validation_alias="FENCEPOST_DATABASE_URL")
    staging_dir: Path = Field(Path("var/staging"), validation_alias="FACTORY_STAGING_DIR")
    publish_dir: Path = Field(Path("var/published"), validation_alias="FACTORY_PUBLISH_DIR")
