"""Work on its way from the driver to its tasks, as code; what tasks answer is data, see `results`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, cast


def pack(value: object) -> bytes:
    """Return work as bytes; functions of modules go by name, others by their code."""
    from pyspark import cloudpickle

    return cast("Callable[[object], bytes]", cloudpickle.dumps)(value)


def unpack(data: bytes) -> Any:
    """Return the work that `pack` was given: called in tasks, on what their driver sent, and only there."""
    return pickle.loads(data)  # noqa: S301 (from the driver, whose code the task runs anyway)
