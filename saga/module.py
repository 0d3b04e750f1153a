"""What each module of a release goes through."""

from __future__ import annotations

from fencepost import Saga
from ledger.vocabulary import ModuleTask
from tasks.attest import attest
from tasks.compile import compile_module
from tasks.inspect import inspect_artifact
from tasks.prepare import prepare
from tasks.stage import stage

module = (
    Saga("module", input=ModuleTask)
    .then(prepare)
    .then(compile_module)
    .then(stage)
    .then(inspect_artifact)
    .then(attest)
)
