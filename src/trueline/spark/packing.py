"""Work on its way from the driver to its tasks, as code; what tasks answer is data, see `results`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from trueline.errors import NotPortable

_BYTES_SENT: Final = 4 << 20


def pack(value: object) -> bytes:
    """Return work as bytes; functions of modules go by name, others by their code."""
    from pyspark import cloudpickle

    try:
        return cast("Callable[[object], bytes]", cloudpickle.dumps)(value)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, NotImplementedError) as error:
        raise NotPortable(
            f"a {type(value).__name__} cannot be sent to Spark's tasks: {error}",
            remedy="open files, connections and locks where they are used: inside the step or the function",
            code="ProcessBound",
        ) from error


def shares(packed: Sequence[bytes]) -> list[range]:
    """Return which of many pieces of work are sent together: a task is sent a share for one of its pieces."""
    found, start, size = [], 0, 0
    for number, each in enumerate(packed):
        if number > start and size + len(each) > _BYTES_SENT:
            found.append(range(start, number))
            start, size = number, 0
        size += len(each)
    return [*found, range(start, len(packed))]


def unpack(data: bytes) -> Any:
    """Return the work that `pack` was given: called in tasks, on what their driver sent, and only there."""
    return pickle.loads(data)  # noqa: S301 (from the driver, whose code the task runs anyway)
