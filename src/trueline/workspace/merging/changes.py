"""Changes by key, laid out as events: key order, then operation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa

from trueline.workspace.merging.merged import Op
from trueline.workspace.state.ordering import Ints, sorting


class Change(IntEnum):
    """What happens to a key."""

    ADD = 0
    RETRACT = 1
    CORRECT = 2


@dataclass(frozen=True)
class Changes:
    """One change for each key, in key order; a correction is two events, the others one."""

    keys: pa.BinaryArray
    kinds: Ints
    new_rows: Ints
    old_rows: Ints

    @property
    def _starts(self) -> Ints:
        """Where each change's first event stands."""
        sizes = np.where(self.kinds == Change.CORRECT, 2, 1)
        return np.asarray(np.cumsum(sizes) - sizes, dtype=np.int64)

    @property
    def _count(self) -> int:
        return len(self.kinds) + int((self.kinds == Change.CORRECT).sum())

    @property
    def set_by(self) -> Ints:
        """The event that says what the key's row is afterwards."""
        return np.asarray(self._starts + (self.kinds == Change.CORRECT), dtype=np.int64)

    @property
    def ops(self) -> Ints:
        """The operation of each event; a correction is from, directly followed by to."""
        ops = np.empty(self._count, dtype=np.int64)
        first = np.array([Op.APPEND, Op.RETRACT, Op.CORRECT_FROM])
        ops[self._starts] = first[self.kinds]
        ops[self._starts[self.kinds == Change.CORRECT] + 1] = Op.CORRECT_TO
        return ops

    def event_rows(self, old_count: int) -> Ints:
        """The row each event shows, among the old rows followed by the new ones: what it cancels, or sets."""
        rows = np.empty(self._count, dtype=np.int64)
        correct = self.kinds == Change.CORRECT
        rows[self._starts] = np.where(self.kinds == Change.ADD, old_count + self.new_rows, self.old_rows)
        rows[self._starts[correct] + 1] = old_count + self.new_rows[correct]
        return rows


def changes(keys: pa.BinaryArray, kinds: Ints, new_rows: Ints, old_rows: Ints) -> Changes:
    """Put changes in key order."""
    order = sorting(keys)
    if order is not None:
        keys = keys.take(pa.array(order))
        kinds, new_rows, old_rows = kinds[order], new_rows[order], old_rows[order]
    return Changes(keys, *(np.asarray(each, dtype=np.int64) for each in (kinds, new_rows, old_rows)))
