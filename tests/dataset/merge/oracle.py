"""The merge strategies said slowly: dictionaries, one row at a time, from the description alone.

Rows are dictionaries; a history is a list of (operation, row) in offset order.
"""

from __future__ import annotations

import struct
from collections import Counter

APPEND, RETRACT, FROM, TO = range(4)


def same(left, right) -> bool:
    """Equal as stored: missing equals missing, NaN equals NaN, the two zeros differ."""
    if isinstance(left, float) and isinstance(right, float):
        if left != left and right != right:  # noqa: PLR0124 (NaN)
            return True
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    return left is right or (left is not None and right is not None and left == right)


def key_of(row, key):
    return tuple(row[name] for name in key)


def fold(history, key):
    """Current rows: by key the row of the highest offset, with that offset; none if it was a retraction."""
    current = {}
    for offset, (op, row) in enumerate(history):
        current[key_of(row, key)] = (offset, op, row)
    return {k: (offset, row) for k, (offset, op, row) in current.items() if op != RETRACT}


def changed(old, new, columns, event_time):
    return any(
        not same(old[name], new[name]) and not (name == event_time and new[name] is None) for name in columns
    )


def timed(row, event_time, source_time):
    return {**row, event_time: source_time if row[event_time] is None else row[event_time]}


class Oracle:
    """One strategy over a growing history; `merge` returns the events and the counts of ignored rows."""

    def __init__(self, key, columns, event_time="event_time", source_time=None, compare=None):
        self.key = key
        self.compare = compare or [name for name in columns if name not in key]
        self.event_time = event_time
        self.source_time = source_time
        self.history = []

    def current(self):
        return {k: row for k, (_, row) in fold(self.history, self.key).items()}

    def filled(self, row):
        return timed(row, self.event_time, self.source_time)

    def append(self, batch):
        return [(APPEND, self.filled(row)) for row in batch], Counter()

    def ledger(self, batch):
        events, ignored = [], Counter()
        known = self.current()
        for row in batch:
            k = key_of(row, self.key)
            if k in known:
                differs = changed(known[k], row, self.compare, self.event_time)
                ignored["conflicting" if differs else "duplicate"] += 1
            else:
                # Later rows of the batch are held against the row as it came.
                known[k] = row
                events.append((APPEND, self.filled(row)))
        return events, ignored

    def snapshot(self, batch):
        new = {key_of(row, self.key): row for row in batch}
        return self.differences(new, dict.fromkeys(new, APPEND), set(self.current()) - set(new))

    def upsert(self, batch):
        last, ops = {}, {}
        for op, row in batch:
            k = key_of(row, self.key)
            last[k], ops[k] = row, op or 0
        events, ignored = self.differences(last, ops, set())
        ignored["superseded"] = len(batch) - len(last)
        return events, ignored

    def differences(self, new, ops, missing):
        events, ignored = [], Counter()
        old = self.current()
        for k in sorted(set(new) | missing):
            if k in missing or ops[k] == RETRACT:
                if k in old:
                    events.append((RETRACT, old[k]))
                else:
                    ignored["unknown"] += 1
            elif k not in old:
                events.append((APPEND, self.filled(new[k])))
            elif changed(old[k], new[k], self.compare, self.event_time):
                events += [(FROM, old[k]), (TO, self.filled(new[k]))]
            else:
                ignored["unchanged"] += 1
        return events, ignored

    def changelog(self, batch):
        keys = sorted({key_of(row, self.key) for _, row in batch})
        ordered = [(op, row) for k in keys for op, row in batch if key_of(row, self.key) == k]
        return [(op, self.filled(row)) for op, row in ordered], Counter()
