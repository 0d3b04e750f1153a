"""Attest: a provenance statement in the ledger, in the form of in-toto's."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

from fencepost import TransactionalContext, step
from ledger import artifacts
from ledger.vocabulary import AttestedModule, InspectedArtifact
from tasks.compile import compile_module
from tasks.prepare import prepare

BUILDER = "urn:fencepost:release-factory"


@step(transactional=True)
def withdraw_attestation(ctx: TransactionalContext, attested: AttestedModule) -> None:
    """Undo `attest`: the statement stays on record, as withdrawn. May be repeated."""
    artifacts.withdraw(ctx.session, attested.statement_step_key)


@step(transactional=True, compensate=withdraw_attestation)
def attest(ctx: TransactionalContext, inspected: InspectedArtifact) -> AttestedModule:
    """Record from which sources, with which flags and by whom an archive was made."""
    statement = _statement(ctx, inspected)
    canonical = json.dumps(statement, sort_keys=True, separators=(",", ":"))
    sha256 = hashlib.sha256(canonical.encode()).hexdigest()
    artifacts.attest(ctx.session, ctx.token, inspected.artifact, statement, sha256)
    return AttestedModule(
        artifact=inspected.artifact, statement_step_key=ctx.step_key, statement_sha256=sha256
    )


def _statement(ctx: TransactionalContext, inspected: InspectedArtifact) -> dict[str, Any]:
    artifact = inspected.artifact
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "https://slsa.dev/provenance/v1",
        "subject": [{"name": artifact.path, "digest": {"sha256": artifact.sha256}}],
        "predicate": {
            "buildDefinition": {
                "buildType": f"{BUILDER}:archive:v1",
                "externalParameters": {
                    "module": artifact.module,
                    "version": artifact.version,
                    "flags": list(artifact.flags),
                },
                "internalParameters": {"python": platform.python_version()},
                "resolvedDependencies": [
                    {
                        "name": artifact.module,
                        "digest": {"sha256": ctx.result_of(prepare).source_digest},
                    }
                ],
            },
            "runDetails": {
                "builder": {"id": BUILDER},
                "metadata": {"invocationId": artifact.step_key},
                "byproducts": [
                    {
                        "name": "manifest",
                        "digest": {"sha256": inspected.manifest_sha256},
                        "annotations": {
                            "files": inspected.files,
                            "compiled": ctx.result_of(compile_module).compiled_files,
                        },
                    }
                ],
            },
        },
    }
