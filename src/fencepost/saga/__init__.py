"""The saga language: steps, sagas, error branches. Pure: it runs nothing."""

from fencepost.saga.definition import ErrorBranch, MapNode, Node, Saga, StepNode, TerminalKind
from fencepost.saga.steps import Step, step

__all__ = [
    "ErrorBranch",
    "MapNode",
    "Node",
    "Saga",
    "Step",
    "StepNode",
    "TerminalKind",
    "step",
]
