"""Whether two values are the same to a step: if so, nothing has changed and later steps are not notified."""

from __future__ import annotations

import dataclasses
import math
import pickle
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from trueline.run.step import ERASED, Step

_EXACT: Final = frozenset({str, int, bool, bytes, type(None), date, timedelta})
# Of these some compare equal that are not: 1.0 and 1.00, a moment in two time zones, arrays of other types.
_LOOSE: Final = (Decimal, datetime, time, complex)
_LOOSE_LIBRARIES: Final = frozenset({"numpy", "pandas", "polars", "pyarrow"})


def same(step: Step, one: Any, other: Any) -> bool:
    """Say whether two values are equal to a step; where comparing fails they are not."""
    if one is other:
        return True
    if one is ERASED or other is ERASED:
        return False
    try:
        if type(step).digest is Step.digest and "digest" not in step.__dict__:
            return bool(one == other) and alike(one, other)
        return bool(step.digest(one) == step.digest(other))
    except Exception:  # noqa: BLE001 (whatever a value's own comparison raises)
        return False


def alike(one: Any, other: Any) -> bool:
    """Say of values that compare equal whether they are: 1, 1.0 and True are not, nor 0.0 and -0.0.

    Classes of one's own are believed, but for the fields of dataclasses, which are looked into.

    >>> alike([1, {"a": 2}], [1, {"a": 2}]), alike([1], [1.0]), alike(0.0, -0.0)
    (True, False, False)
    """
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _EXACT:
        return True
    if isinstance(one, float):
        return math.copysign(1.0, one) == math.copysign(1.0, other)
    if isinstance(one, list | tuple):
        return all(map(alike, one, other))
    if isinstance(one, dict):  # the order of its keys is part of what the next step sees
        return all(map(alike, one.items(), other.items())) and list(one) == list(other)
    if isinstance(one, set | frozenset):
        twins = {each: each for each in other}
        return all(alike(each, twins[each]) for each in one)
    if isinstance(one, _LOOSE) or kind.__module__.partition(".")[0] in _LOOSE_LIBRARIES:
        return pickle.dumps(one) == pickle.dumps(other)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.compare]
        return all(alike(getattr(one, name), getattr(other, name)) for name in names)
    return True
