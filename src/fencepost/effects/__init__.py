"""Effects: changes outside the checkpoint chain that happen once. Pure: it calls nothing."""

from fencepost.effects.declaration import Effect, effect
from fencepost.effects.model import (
    EffectCall,
    EffectKind,
    EffectRecord,
    EffectStatus,
    FencedSink,
    Landed,
    NotLanded,
    Unknown,
)

__all__ = [
    "Effect",
    "EffectCall",
    "EffectKind",
    "EffectRecord",
    "EffectStatus",
    "FencedSink",
    "Landed",
    "NotLanded",
    "Unknown",
    "effect",
]
