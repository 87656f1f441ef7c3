"""States as hashable values, equal where nothing can tell them apart."""

from __future__ import annotations

import pickle
from typing import Any

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
