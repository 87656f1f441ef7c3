"""The rows of a keyed dataset by key, as its checkpoints keep them.

This is the documented name of the state store; it lives in `trueline.dataset.state`.
"""

from __future__ import annotations

from trueline.dataset.state import KeyEncoding, KeyRange, State, encode_keys

__all__ = ["KeyEncoding", "KeyRange", "State", "encode_keys"]
