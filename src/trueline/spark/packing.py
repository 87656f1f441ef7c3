"""Values on their way between our driver and our tasks, as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, cast


def pack(value: object) -> bytes:
    """Return a value as bytes; functions of modules go by name, others by their code."""
    from pyspark import cloudpickle

    return cast("Callable[[object], bytes]", cloudpickle.dumps)(value)


def unpack(data: bytes) -> Any:
    """Return the value that `pack` was given."""
    return pickle.loads(data)  # noqa: S301 (both ends are ours)
