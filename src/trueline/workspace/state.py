"""The state store under its documented name; it lives in `trueline.dataset.state`."""

from __future__ import annotations

from trueline.dataset.state import KeyEncoding, KeyRange, State, encode_keys

__all__ = ["KeyEncoding", "KeyRange", "State", "encode_keys"]
