"""States as hashable values, equal where nothing can tell them apart."""

from __future__ import annotations

import pickle
from typing import Any


def frozen(value: Any) -> Any:
    """A hashable stand-in for a value: itself if it is hashable, else one made of its parts.

    >>> frozen((1, [2, {"a": []}])) == frozen((1, [2, {"a": []}]))
    True
    """
    try:
        hash(value)
    except TypeError:
        pass
    else:
        return value
    if isinstance(value, tuple):
        return tuple([frozen(each) for each in value])
    if isinstance(value, list):
        return ("list", *[frozen(each) for each in value])
    if isinstance(value, dict):
        return ("dict", frozenset([(key, frozen(each)) for key, each in value.items()]))
    if isinstance(value, set):
        return ("set", frozenset(value))
    return (type(value).__name__, pickle.dumps(value))
