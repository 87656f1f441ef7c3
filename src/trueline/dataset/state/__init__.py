"""The state store: the current row of every key, for merge strategies, derivations and flows."""

from __future__ import annotations

from trueline.dataset.state.segment import GONE, SegmentInfo
from trueline.dataset.state.segment_reader import Reads
from trueline.dataset.state.state import State
from trueline.kernel.key_encoding import (
    KEY,
    OFFSET,
    KeyEncoding,
    KeyRange,
    encode_keys,
    ranges,
    splitters_by_rank,
)

__all__ = [
    "GONE",
    "KEY",
    "OFFSET",
    "KeyEncoding",
    "KeyRange",
    "Reads",
    "SegmentInfo",
    "State",
    "encode_keys",
    "ranges",
    "splitters_by_rank",
]
