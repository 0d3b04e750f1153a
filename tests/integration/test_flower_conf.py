"""flower.conf: loopback unless there is a login."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CONF = Path(__file__).resolve().parents[2] / "flower.conf"
# Flower's own way to its options, up to the point at which it would open the port.
SHOW = """
import json, sys
from flower.command import apply_env_options, apply_options, options
apply_env_options()
apply_options("flower", sys.argv[1:])
print(json.dumps({"address": options.address, "basic_auth": options.basic_auth,
                  "broker_api": options.broker_api}))
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SHOW, f"--conf={CONF}", *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def settings(*arguments: str, **environment: str) -> dict[str, Any]:
    done = run(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def test_without_a_login_it_listens_on_loopback() -> None:
    assert settings() == {"address": "127.0.0.1", "basic_auth": [], "broker_api": ""}


def test_another_loopback_address_needs_no_login() -> None:
    assert settings(FLOWER_ADDRESS="localhost")["address"] == "localhost"
    assert settings(FLOWER_ADDRESS="::1")["address"] == "::1"


@pytest.mark.parametrize("login", [{}, {"FLOWER_BASIC_AUTH": ""}], ids=["none", "empty"])
def test_it_refuses_to_listen_beyond_loopback_without_a_login(login: dict[str, str]) -> None:
    refused = run(FLOWER_ADDRESS="0.0.0.0", **login)
    assert refused.returncode != 0
    assert "refusing to listen on 0.0.0.0" in refused.stderr
    assert "FLOWER_BASIC_AUTH" in refused.stderr


def test_the_command_line_cannot_slip_past() -> None:
    assert run("--address=0.0.0.0").returncode != 0


def test_with_a_login_it_listens_where_it_is_told() -> None:
    shown = settings(FLOWER_ADDRESS="0.0.0.0", FLOWER_BASIC_AUTH="a:b,c:d")
    assert shown["address"] == "0.0.0.0"
    assert shown["basic_auth"] == ["a:b", "c:d"]
