"""The values of a flow: whether they can change, copies of them, equality, and states as hashable values."""

from __future__ import annotations

import copy
import pickle
from typing import Any


def is_fixed(value: Any) -> bool:
    """Whether a value cannot change, as far as Python knows."""
    try:
        hash(value)
    except Exception:  # noqa: BLE001 (a class may refuse to be hashed as it likes)
        return False
    return not _is_plain(value)


def _is_plain(value: Any) -> bool:
    """Whether it is an object of a class that says nothing about equality: it is hashable, and may change."""
    kind: Any = type(value)
    return kind.__hash__ is object.__hash__ and hasattr(value, "__dict__")


def copied(value: Any) -> Any:
    """A copy of a value; itself, where it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 (locks, open files, generators, depth: they raise what they like)
        return value


def alike(a: Any, b: Any) -> bool:
    """Whether two values are equal; NaN is like NaN, and what cannot be compared is not held against it.

    >>> alike([float("nan")], [float("nan")]), alike({"a": 1}, {"a": 2})
    (True, False)
    """
    if a is b:
        return True
    try:
        if bool(a == b):
            return True
    except Exception:  # noqa: BLE001 (arrays have no truth, and __eq__ may raise what it likes)
        return _same_bytes(a, b, otherwise=True)
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a != a and b != b  # noqa: PLR0124 (only NaN differs from itself)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(value, b[key]) for key, value in a.items())
    if _is_plain(a):
        return alike(vars(a), vars(b))
    kind: Any = type(a)
    return False if kind.__eq__ is not object.__eq__ else _same_bytes(a, b, otherwise=True)


def _same_bytes(a: Any, b: Any, *, otherwise: bool) -> bool:
    try:
        return pickle.dumps(a) == pickle.dumps(b)
    except Exception:  # noqa: BLE001 (what cannot be pickled cannot be compared so)
        return otherwise


# --- states ---------------------------------------------------------------------------

# What a stand-in begins with: no value of a flow holds one, so none can be taken for a stand-in.
_LIST, _DICT, _SET, _WRITTEN = object(), object(), object(), object()


def frozen(value: Any) -> Any:
    """A hashable stand-in for a value: itself if it is hashable, else one made of its parts.

    Values that are equal are taken for the same (1 and True too); what can be neither hashed nor written
    down is only ever itself.

    >>> frozen((1, [2, {"a": []}])) == frozen((1, [2, {"a": []}]))
    True
    >>> frozen([1]) == frozen(("list", 1))
    False
    """
    try:
        hash(value)
    except Exception:  # noqa: BLE001, S110 (a class may refuse to be hashed as it likes)
        pass
    else:
        return value
    if isinstance(value, tuple):
        return tuple([frozen(each) for each in value])
    if isinstance(value, list):
        return (_LIST, *[frozen(each) for each in value])
    if isinstance(value, dict):
        return (_DICT, frozenset([(key, frozen(each)) for key, each in value.items()]))
    if isinstance(value, set):
        return (_SET, frozenset(value))
    try:
        return (_WRITTEN, type(value), pickle.dumps(value))
    except Exception:  # noqa: BLE001 (an object may refuse to be written down as it likes)
        return _Itself(value)


class _Itself:
    """Stands for one object; keeps it, so that no later one can be taken for it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.value is self.value
