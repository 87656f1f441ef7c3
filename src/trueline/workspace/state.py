"""The state store under its documented name; it lives in `trueline.dataset.state`."""

from __future__ import annotations

from trueline.dataset.state import KeyRange, State, encode_keys

__all__ = ["KeyRange", "State", "encode_keys"]
