"""Where the planner's model is, read from the environment.

| variable | meaning | default |
|---|---|---|
| `FACTORY_PLANNER` | `offline` (a deterministic stand-in, no network) or `live` | `offline` |
| `OPENAI_API_KEY` | the key; needed when live | |
| `OPENAI_BASE_URL` | any OpenAI-compatible server, OpenRouter included | OpenAI's own |
| `FACTORY_PLANNER_MODEL` | the model's name at that server | `gpt-4.1-mini` at OpenAI |
| `FACTORY_PLANNER_TIMEOUT` | seconds that one request may take, 1 to 600 | 60 |
| `FACTORY_PLANNER_RETRIES` | repeats of a request on 429, 5xx, network errors, 0 to 10 | 3 |
| `FACTORY_PLANNER_TOKENS` | tokens that one plan may cost, 1,000 to 10,000,000 | 60000 |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr

from tasks.planner.errors import PlannerConfigurationError

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_MODEL = "gpt-4.1-mini"
OFFLINE_URL = "http://planner.invalid/v1"
OFFLINE_MODEL = "offline-rules"


class PlannerSettings(BaseModel):
    """The planner's settings, validated.

    Attributes:
        mode: `offline` or `live`.
        api_key: The server's key; never shown in a repr or a log.
        base_url: The server's URL, ending in its API version (`.../v1`).
        model: The model's name.
        timeout: Seconds that one request may take.
        max_retries: How often the client repeats a failed request.
        token_budget: Tokens, both ways together, that one plan may cost.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["offline", "live"] = "offline"
    api_key: SecretStr = SecretStr("offline")
    base_url: str = OFFLINE_URL
    model: str = OFFLINE_MODEL
    timeout: float = 60.0
    max_retries: int = 3
    token_budget: int = 60_000

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> PlannerSettings:
        """Read and check the settings.

        Raises:
            PlannerConfigurationError: A variable is missing or has a bad value.
        """
        mode = environ.get("FACTORY_PLANNER", "").strip().lower() or "offline"
        limits = {
            "timeout": _number(environ, "FACTORY_PLANNER_TIMEOUT", 60, low=1, high=600),
            "max_retries": _number(environ, "FACTORY_PLANNER_RETRIES", 3, low=0, high=10),
            "token_budget": _number(
                environ, "FACTORY_PLANNER_TOKENS", 60_000, low=1_000, high=10_000_000
            ),
        }
        if mode == "offline":
            return cls.model_validate({"mode": "offline", **limits})
        if mode != "live":
            raise PlannerConfigurationError("FACTORY_PLANNER", "must be `offline` or `live`")
        key = environ.get("OPENAI_API_KEY", "").strip()
        if not key:
            raise PlannerConfigurationError(
                "OPENAI_API_KEY", "must be set when FACTORY_PLANNER is `live`"
            )
        if not key.isascii() or not key.isprintable():
            raise PlannerConfigurationError(
                "OPENAI_API_KEY", "holds characters that no HTTP header can carry"
            )
        base_url = _base_url(environ)
        return cls.model_validate(
            {
                "mode": "live",
                "api_key": key,
                "base_url": base_url,
                "model": _model(environ, base_url),
                **limits,
            }
        )


def _base_url(environ: Mapping[str, str]) -> str:
    url = environ.get("OPENAI_BASE_URL", "").strip().rstrip("/") or OPENAI_URL
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        raise PlannerConfigurationError("OPENAI_BASE_URL", "is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
        raise PlannerConfigurationError(
            "OPENAI_BASE_URL", "must be an http or https URL, such as https://host/v1"
        )
    # HTTP libraries log URLs, so that a secret in one would end up in the workers' logs.
    if parts.username or parts.password or parts.query or parts.fragment:
        raise PlannerConfigurationError(
            "OPENAI_BASE_URL", "must hold no user, password, query or fragment"
        )
    return url


def _model(environ: Mapping[str, str], base_url: str) -> str:
    model = environ.get("FACTORY_PLANNER_MODEL", "").strip()
    if model:
        return model
    if base_url == OPENAI_URL:
        return OPENAI_MODEL
    raise PlannerConfigurationError(
        "FACTORY_PLANNER_MODEL", "must name a model when OPENAI_BASE_URL is set"
    )


def _number(environ: Mapping[str, str], variable: str, default: int, *, low: int, high: int) -> int:
    text = environ.get(variable, "").strip()
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise PlannerConfigurationError(variable, f"must be a whole number, {low} to {high}")
    return number
