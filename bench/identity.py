"""Row ids by the million, and the logical hash beside bare sha3-256."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha3_256

from bench import rows
from bench.run import Run
from bench.table import Row, rate
from bench.timing import sample
from trueline.identity import RowId, RowIds, logical_hash

LEAST = 10_000_000
NOTE = "logical hash: the peer is hashlib's sha3-256 over as many bytes as the table's Arrow buffers have."


def run(run: Run) -> Iterator[Row]:
    yield from _ids(run.scale.ids)
    yield from _hashes(run.scale.hashed_rows)


def _ids(count: int) -> Iterator[Row]:
    left, right = RowIds.range(0, count), RowIds.range(RowId(7).fork(), count)
    actions = {"next": left.next, "fork": left.fork, "combine": lambda: left.combine(right)}
    for name, action in actions.items():
        samples = sample(action, 7, warmup=1)
        speed = count / samples.median
        value = rate(speed, "ids", samples)
        yield Row("ids", f"row ids: {name}", value, goal="≥ 10 M/s", met=speed >= LEAST)


def _hashes(count: int) -> Iterator[Row]:
    data = rows.table(count)
    numbers = data.select(["event_time", "id", "price", "quantity"])
    for what, part in (("numbers", numbers), ("numbers and texts", data)):
        size = part.nbytes
        raw = bytes(size)
        ours = sample(lambda part=part: logical_hash(part), 3, warmup=1)  # type: ignore[misc]
        bare = sample(lambda raw=raw: sha3_256(raw).digest(), 3)  # type: ignore[misc]
        yield Row(
            "ids",
            f"logical hash: {what}",
            rate(size / ours.median, "B", ours),
            rate(size / bare.median, "B", bare),
            bare.median / ours.median,
            note=NOTE,
        )
