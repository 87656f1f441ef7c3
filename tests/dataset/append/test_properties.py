"""However rows come in, the slices, the state and the current rows are the same."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import struct
import tempfile
from decimal import Decimal
from itertools import count, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.workspace.records import records, slices
from trueline.chain.instant import Instant
from trueline.dataset.append import append as committing
from trueline.dataset.append import merge as merging
from trueline.dataset.append import pieces
from trueline.dataset.append.merge import open_state

MAX = examples(8)
SYSTEM = ("offset", "op", "system_time")
NAN = float("nan")
TIMES = [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999000, dt.UTC)]
MOMENTS = [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2262, 5, 1)]

# Types of keys, each with values that are close to each other in one way or another.
KEYS = {
    "int": ([pa.int64()], [st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])]),
    "small unsigned": ([pa.uint8()], [st.integers(0, 255)]),
    "text": (
        [pa.string()],
        [st.sampled_from(["", "a", "a\0", "a\0\0", "é", "e\u0301", "ß", "中", "\U0001f600"])],
    ),
    "float": ([pa.float64()], [st.sampled_from([0.0, -0.0, NAN, float("inf"), -1.5, 5e-324])]),
    "decimal": (
        [pa.decimal128(20, 2)],
        [st.sampled_from([Decimal("-0.01"), Decimal("0.00"), Decimal("9e16")])],
    ),
    "timestamp": ([pa.timestamp("us")], [st.sampled_from(MOMENTS)]),
    "date": (
        [pa.date32()],
        [st.sampled_from([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)])],
    ),
    "bool": ([pa.bool_()], [st.booleans()]),
    "bytes": ([pa.binary()], [st.binary(max_size=3)]),
    "composite": (
        [pa.string(), pa.float32(), pa.int16()],
        [st.sampled_from(["", "a", "a\0"]), st.sampled_from([0.0, -0.0, NAN]), st.integers(-1, 1)],
    ),
}
EXTRA = pa.field("extra", pa.list_(pa.string()))


def columns(kinds, with_extra):
    names = [f"k{n}" for n in range(len(kinds))]
    fields = [pa.field("at", pa.timestamp("us", "UTC")), *map(pa.field, names, kinds)]
    return pa.schema(
        [*fields, pa.field("x", pa.float64()), pa.field("s", pa.string()), *[EXTRA] * with_extra]
    )


@st.composite
def histories(draw, strategy):
    """The columns of a key, and batches that fit them and the strategy; a column comes later."""
    kind = draw(st.sampled_from(sorted(KEYS)))
    kinds, values = KEYS[kind]
    grows = draw(st.integers(1, 5))
    row = {
        "at": st.none() | st.sampled_from(TIMES),
        **{f"k{n}": value for n, value in enumerate(values)},
        "x": st.none() | st.sampled_from([0.0, -0.0, NAN, 1.5]),
        "s": st.none() | st.sampled_from(["", "b"]),
    }
    batches = []
    for number in range(draw(st.integers(1, 4))):
        schema = columns(kinds, number >= grows)
        more = (
            {"extra": st.none() | st.lists(st.none() | st.just("p"), max_size=1)} if number >= grows else {}
        )
        rows = draw(
            st.lists(st.fixed_dictionaries(row | more), min_size=draw(st.sampled_from([0, 6])), max_size=12)
        )
        if strategy == "snapshot":
            rows = list({identity(r, len(kinds)): r for r in rows}.values())
        table = pa.Table.from_pylist(rows, schema=schema)
        if strategy == "changelog":
            table = whole_changes(draw, table)
        elif strategy == "upsert" and draw(st.booleans()):
            ops = draw(st.lists(st.sampled_from([0, 1, None]), min_size=len(rows), max_size=len(rows)))
            table = table.append_column("op", pa.array(ops, pa.int32()))
        batches.append((table, cuts(draw, table.num_rows), draw(st.integers(1, 4))))
    return kind, batches


def whole_changes(draw, table):
    """Rows as appends and retractions, some as corrections of themselves."""
    which, ops = [], []
    for row in range(table.num_rows):
        op = draw(st.sampled_from([0, 1, 2]))
        which += [row, row] if op == 2 else [row]
        ops += [2, 3] if op == 2 else [op]
    return table.take(pa.array(which, pa.int64())).append_column("op", pa.array(ops, pa.int32()))


def cuts(draw, rows):
    places = draw(st.lists(st.integers(0, rows), max_size=3))
    return [0, *sorted(places), rows]


def canonical(value):
    """A value that is equal to another where the stored bytes are."""
    if isinstance(value, float):
        return ("nan",) if value != value else struct.pack(">d", value)  # noqa: PLR0124 (NaN)
    return tuple(map(canonical, value)) if isinstance(value, list) else value


def identity(row, width):
    """The key of a row; both zeros are one key (exchange:E5)."""
    values = (row[f"k{n}"] for n in range(width))
    return tuple(canonical(one_zero(value)) for value in values)


def plain(row):
    """A row without system columns; which of both zeros a key has is that of the row that set it."""
    return {
        name: canonical(one_zero(value) if re.fullmatch(r"k\d", name) else value)
        for name, value in row.items()
        if name not in (*SYSTEM, "_key", "_offset")
    }


def one_zero(value):
    return 0.0 if isinstance(value, float) and value == 0 else value


def oracle(strategy, width, batches):
    """The current rows, said with a dictionary."""
    current = {}
    for table, _, _ in batches:
        rows = table.to_pylist()
        ops = [row.pop("op", None) or 0 for row in rows]
        keys = [identity(row, width) for row in rows]
        if strategy == "ledger":
            for key, row in zip(keys, rows, strict=True):
                current.setdefault(key, row)
        elif strategy == "changelog":
            for key, row, op in zip(keys, rows, ops, strict=True):
                current[key] = None if op == 1 else row
        else:
            # The last of a key counts; a snapshot takes away what it lacks.
            last = {key: None if op == 1 else row for key, row, op in zip(keys, rows, ops, strict=True)}
            # In a whole dump a null is what the column holds, in an upsert an event time that was not given.
            upserted = {key: row and held(current.get(key), row) for key, row in last.items()}
            current = last if strategy == "snapshot" else current | upserted
        current = {key: row for key, row in current.items() if row is not None}
    return current


def held(old, new):
    """A row that says nothing new but lacks its event time leaves the old one as it was."""
    if old is None or new["at"] is not None:
        return new
    rest = {name: value for name, value in plain(new).items() if name != "at"}
    before = {"extra": None} if "extra" in new else {}
    before |= {name: value for name, value in plain(old).items() if name != "at"}
    return old if {**dict.fromkeys(before), **rest} == before else new


class Clock(Instant):
    """A clock that stands still, so that slices of two datasets can be compared."""

    @classmethod
    def now(cls):
        return Instant.parse("2100-01-01T00:00:00Z")


def as_files(folder, numbers, batch):
    """Write a batch as Parquet files, cut at some places, in row groups of some size."""
    table, places, group = batch
    paths = []
    for start, stop in pairwise(places):
        path = folder / f"{next(numbers)}.parquet"
        # No two files have the same bytes: known ones would be passed over.
        part = table.slice(start, stop - start).replace_schema_metadata({"file": path.name})
        pq.write_table(part, path, row_group_size=group)
        paths.append(path)
    return paths


def as_chunks(batch):
    table, places, _ = batch
    parts = [table.slice(a, b - a) for a, b in pairwise(places)]
    return pa.concat_tables(parts)


def ingested(strategy, width, batches, way, at_once):
    """Ingest batches into a new dataset; slices by hash, the state, the records and the counts."""
    folder = Path(tempfile.mkdtemp(prefix="trueline-test-"))
    numbers = count()
    try:
        with pytest.MonkeyPatch.context() as patch, tl.open(folder / "ws", create=True) as ws:
            patch.setattr(committing, "Instant", Clock)
            patch.setattr(committing, "ROWS_OF_A_SLICE", 5)
            patch.setattr(pieces.cut, "__defaults__", (5,))
            patch.setattr(pieces, "ROWS_OF_A_BATCH", 2)
            patch.setattr(merging, "ROWS_AT_ONCE", at_once)
            ws.config.set("storage.durable", False)
            key = () if strategy == "append" else ([f"k{n}" for n in range(width)],)
            merge = getattr(tl.merge, strategy)(*key)
            ds = ws.create("x", merge=merge, event_time="at", new_columns="add")
            ignored = []
            for batch in batches:
                data = {
                    "table": lambda batch=batch: batch[0],
                    "chunks": lambda batch=batch: as_chunks(batch),
                    "files": lambda batch=batch: as_files(folder, numbers, batch),
                }[way]()
                ignored.append(dict(ds.append(data, allow_empty=True).ignored))
            assert ds.verify().ok, ds.verify().problems
            found = [part.logical_hash for part, _ in slices(ds)]
            state = [
                row
                for batch in open_state(ds.chain.store, ds.chain.tail()).scan()
                for row in batch.to_pylist()
            ]
            events = records(ds).to_pylist() if found else []
            return found, state, events, ignored, ds.info.watermark
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("strategy", ["append", "ledger", "upsert", "snapshot", "changelog"])
@settings(max_examples=MAX)
@given(data=st.data())
def test_slices_and_state_do_not_depend_on_how_rows_come_in(strategy, data):
    kind, batches = data.draw(histories(strategy))
    width = len(KEYS[kind][0])
    seen = [
        ingested(strategy, width, batches, way, at_once)
        for way, at_once in (("table", 1 << 20), ("chunks", 3), ("files", 1 << 20), ("files", 4))
    ]
    hashes, state, events, ignored, watermark = seen[0]
    for others in seen[1:]:
        assert others[0] == hashes
        assert list(map(plain, others[1])) == list(map(plain, state))
        assert [row["_key"] for row in others[1]] == [row["_key"] for row in state]
        assert [row["_offset"] for row in others[1]] == [row["_offset"] for row in state]
        assert others[3:] == (ignored, watermark)
    assert [row["offset"] for row in events] == list(range(len(events)))
    check_current(strategy, width, batches, state, events)


def check_current(strategy, width, batches, state, events):
    """Folding the events, the state, and a dictionary say the same."""
    if strategy == "append":
        rows = [row for table, _, _ in batches for row in table.to_pylist()]
        names = {name for row in events for name in row}
        assert [plain(row) for row in events] == [plain(dict.fromkeys(names) | row) for row in rows]
        return
    folded = {}
    for row in events:
        folded[identity(row, width)] = row
    folded = {key: row for key, row in folded.items() if row["op"] != 1}
    assert sorted(row["offset"] for row in folded.values()) == sorted(row["_offset"] for row in state)
    names = {name for row in events for name in row}
    wanted = {key: plain(dict.fromkeys(names) | row) for key, row in oracle(strategy, width, batches).items()}
    assert {key: plain(row) for key, row in folded.items()} == wanted
    if strategy != "ledger":
        by_key = {identity(row, width): plain(dict.fromkeys(names) | row) for row in state}
        assert by_key == wanted
