"""Findings as SARIF 2.1.0, which code hosts show beside the code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fencepost._version import __version__
from fencepost.celery import QUEUE_RULES, SETTINGS_RULES
from fencepost.findings import Finding, Rule, Source
from fencepost.saga.checks import RULES

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
PAGE = "docs/reference/checks.md"

ALL_RULES: tuple[Rule, ...] = (*RULES, *QUEUE_RULES, *SETTINGS_RULES)
"""Everything that `fencepost check` looks for."""


def report(findings: Sequence[Finding]) -> str:
    """A SARIF log with one run."""
    codes = [rule.code for rule in ALL_RULES]
    driver = {
        "name": "fencepost check",
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in ALL_RULES],
    }
    results = [_result(finding, codes) for finding in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(rule: Rule) -> dict[str, Any]:
    help_text = f"{rule.what} {rule.why} To mend it: {rule.mend}."
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": f"{rule.what} {rule.why}"},
        "help": {"text": help_text, "markdown": f"{help_text}\n\nSee `{PAGE}#{rule.anchor}`."},
        "defaultConfiguration": {"level": str(rule.severity)},
    }


def _result(finding: Finding, codes: list[str]) -> dict[str, Any]:
    identity = f"{finding.code}\0{finding.place}"
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": str(finding.severity),
        "message": {"text": f"{finding.place}: {finding.message}; {finding.fix}."},
        "locations": [_location(finding)],
        "partialFingerprints": {
            "fencepostFinding/v1": hashlib.sha256(identity.encode()).hexdigest()
        },
    }
    if finding.code in codes:
        result["ruleIndex"] = codes.index(finding.code)
    return result


def _location(finding: Finding) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": finding.place}]}
    if finding.source is not None:
        location["physicalLocation"] = {
            "artifactLocation": _artifact(finding.source),
            "region": {"startLine": finding.source.line},
        }
    return location


def _artifact(source: Source) -> dict[str, str]:
    file = Path(source.file).absolute()
    try:
        return {"uri": file.relative_to(Path.cwd()).as_posix(), "uriBaseId": "%SRCROOT%"}
    except ValueError:
        return {"uri": file.as_uri()}
