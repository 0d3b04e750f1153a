"""Agent loops in durable tasks: model calls are journaled, tools go through `ctx.perform`.

A loop that is killed anywhere repeats no tool's effect and no model call whose answer was
recorded. A model call whose answer was not recorded yet is made again: inference is not exactly
once.
"""

from fencepost.agents.loop import MAX_TURNS, AgentResult, AgentTurnLimitError, run_agent
from fencepost.agents.model import (
    MODEL_RETRIES,
    ChatClient,
    Conversation,
    ModelReply,
    ModelUnavailableError,
    model_step,
)
from fencepost.agents.tools import Tool, ToolCall, Tools

__all__ = [
    "MAX_TURNS",
    "MODEL_RETRIES",
    "AgentResult",
    "AgentTurnLimitError",
    "ChatClient",
    "Conversation",
    "ModelReply",
    "ModelUnavailableError",
    "Tool",
    "ToolCall",
    "Tools",
    "model_step",
    "run_agent",
]
