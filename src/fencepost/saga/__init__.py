"""The saga language: steps, sagas, error branches. Pure: it runs nothing."""

from fencepost.saga.branches import ErrorBranch
from fencepost.saga.definition import Saga
from fencepost.saga.joins import (
    AllSucceed,
    ChildResult,
    Collect,
    FirstFailure,
    Join,
    Quorum,
)
from fencepost.saga.nodes import (
    BranchNode,
    LoopNode,
    MapNode,
    Node,
    StepNode,
    TerminalKind,
    WaitKind,
    WaitNode,
)
from fencepost.saga.signals import Approval, Signal
from fencepost.saga.steps import STAYS, Step, step

__all__ = [
    "STAYS",
    "AllSucceed",
    "Approval",
    "BranchNode",
    "ChildResult",
    "Collect",
    "ErrorBranch",
    "FirstFailure",
    "Join",
    "LoopNode",
    "MapNode",
    "Node",
    "Quorum",
    "Saga",
    "Signal",
    "Step",
    "StepNode",
    "TerminalKind",
    "WaitKind",
    "WaitNode",
    "step",
]
