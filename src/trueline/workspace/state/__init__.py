"""The state store: the current row of every key, for merge strategies, derivations and flows."""

from __future__ import annotations

from trueline.workspace.state.keys import KEY, OFFSET, KeyRange, encode_keys, ranges, splitters_by_rank
from trueline.workspace.state.reading import Reads
from trueline.workspace.state.segment import GONE, SegmentInfo
from trueline.workspace.state.state import State

__all__ = [
    "GONE",
    "KEY",
    "OFFSET",
    "KeyRange",
    "Reads",
    "SegmentInfo",
    "State",
    "encode_keys",
    "ranges",
    "splitters_by_rank",
]
