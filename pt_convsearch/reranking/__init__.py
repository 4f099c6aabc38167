"""Results to results: leaving out what was seen, fusing several rankings."""

from .drop_seen import DropSeen
from .fusion import interpolate, rrf

__all__ = ["DropSeen", "interpolate", "rrf"]
