"""Appending a stream: any kind of it, in bounded memory, with the bytes a table gives."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import trueline as tl
from tests.dataset.append.test_bounds import ENVIRONMENT
from tests.dataset.append.test_faults import leftovers
from tests.examples import some
from tests.workspace.records import records, slices
from trueline.chain.instant import Instant
from trueline.dataset.append import stream
from trueline.errors import InputError, SchemaError
from trueline.run import Step
from trueline.view import View

# After whatever time it is when a dataset is created.
NOW = Instant.parse("2200-01-01T00:00:00Z")
TABLE = pa.table(
    {
        "id": pa.array([n * 7 % 50 for n in range(120)]),
        "event_time": pa.array(
            [1_700_000_000_000_001 + n * 1_000_500 for n in range(120)], pa.timestamp("us")
        ),
        "price": pa.array([float("nan") if n % 9 == 0 else n / 7 for n in range(120)]),
        "text": pa.array([None if n % 5 == 0 else f"text {n % 3}" for n in range(120)]).dictionary_encode(),
    }
)
STRATEGIES = {
    "append": tl.merge.append(),
    "ledger": tl.merge.ledger("id"),
    "snapshot": tl.merge.snapshot("id"),
    "upsert": tl.merge.upsert("id"),
}
STREAMS = {
    "reader": lambda table: pa.RecordBatchReader.from_batches(table.schema, batches(table)),
    "generator": lambda table: (batch for batch in batches(table)),
    "tables": lambda table: iter([table.slice(0, 30), table.slice(30)]),
    "pandas": lambda table: (batch.to_pandas() for batch in batches(table)),
    "view": View.from_arrow,
}


def batches(table):
    return table.to_batches(max_chunksize=25)


@pytest.fixture
def ws(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.config.set("storage.durable", False)
        ws.clock = lambda: NOW
        yield ws


@pytest.fixture(params=["in memory", "in scratch"])
def spooled(request, monkeypatch):
    """Both ways: streams that are small, and the same streams as if they were large."""
    if request.param == "in scratch":
        monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)
    return request.param == "in scratch"


def written(ds):
    """What a dataset says: slices with their hashes, notes, watermark, state."""
    blocks = [block.data_event for _, block in ds.chain.between(None) if block.data_event is not None]
    return [(e.new_data, e.new_watermark, e.new_checkpoint, e.extra) for e in blocks]


@pytest.mark.parametrize("merge", STRATEGIES)
@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_gives_the_bytes_of_the_table(ws, spooled, kind, merge):
    rows = TABLE.slice(0, 50) if merge == "snapshot" else TABLE
    if kind == "pandas":  # for which NaN is null
        rows = rows.drop_columns(["price"])
    table = ws.create("table", merge=STRATEGIES[merge])
    table.append(rows, idempotency_key="k")
    streamed = ws.create("stream", merge=STRATEGIES[merge])
    commit = streamed.append(STREAMS[kind](rows), idempotency_key="k")
    assert written(streamed) == written(table)
    assert commit.watermark is not None
    again = streamed.append(STREAMS[kind](rows), idempotency_key="k")
    assert again.block == commit.block, "the digest is that of the rows, whatever they came in"
    assert streamed.append(rows, idempotency_key="k").block == commit.block
    assert streamed.verify().ok


def test_a_view_of_the_dataset_itself_may_be_appended(ws, spooled):
    ds = ws.create("x")
    ds.append(pa.table({"x": [1, 2]}))
    ds.append(ds.view())
    assert records(ds)["x"].to_pylist() == [1, 2, 1, 2]


def test_operations_go_along(ws, spooled):
    ds = ws.create("x", merge=tl.merge.changelog("id"))
    ds.append(iter([pa.table({"id": [1, 2], "x": ["a", "b"], "op": [0, 0]})]))
    ds.append(
        iter([pa.table({"id": [1], "x": ["a"], "op": [1]}), pa.table({"id": [3], "x": ["c"], "op": [0]})])
    )
    assert ds.view().to_arrow()["id"].to_pylist() == [2, 3]


def test_a_stream_may_extend_the_schema_and_leave_columns_out(ws, spooled):
    ds = ws.create("x")
    ds.append(pa.table({"x": [1], "y": ["a"]}))
    ds.append(iter([pa.table({"x": [2], "z": [0.5]}), pa.table({"x": [3], "z": [1.5]})]), new_columns="add")
    assert ds.view().to_arrow().to_pylist()[1:] == [
        {"x": 2, "y": None, "z": 0.5},
        {"x": 3, "y": None, "z": 1.5},
    ]


def test_chunks_of_pandas_without_a_value_fit(ws, spooled):
    """pandas gives a text column without texts no type."""
    chunks = [pd.DataFrame({"x": [1], "s": ["a"]}), pd.DataFrame({"x": [2], "s": [None]}, index=[7])]
    ws.create("x").append(iter(chunks))
    assert ws["x"].view().to_arrow().to_pylist() == [{"x": 1, "s": "a"}, {"x": 2, "s": None}]


@pytest.mark.parametrize(
    ("second", "match"),
    [
        (pa.table({"x": [1], "y": [2]}), "y: the first batch does not have it"),
        (pa.table({"x": ["a"]}), "x"),
    ],
)
def test_batches_with_other_columns_are_refused(ws, spooled, second, match):
    ds = ws.create("x")
    with pytest.raises(SchemaError, match=match):
        ds.append(iter([pa.table({"x": [1]}), second]))
    assert ds.info.rows == 0


def broken(error):
    yield from batches(TABLE)[:3]
    raise error


@pytest.mark.parametrize("error", [ValueError("no more"), OSError(28, "disk full elsewhere"), KeyError("x")])
@pytest.mark.parametrize("through", ["generator", "reader", "stream"])
def test_a_stream_that_fails_commits_nothing(ws, spooled, error, through):
    ds = ws.create("x", new_columns="add")
    ds.append(pa.table({"id": [1]}))
    head = ds.head
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, broken(error))
    given = {"generator": broken(error), "reader": reader, "stream": Capsule(reader)}[through]
    with pytest.raises(InputError) as caught:
        ds.append(given)
    assert caught.value.code == "StreamFailed"
    assert "nothing was committed" in caught.value.remedy
    assert (ds.head, ds.info.rows) == (head, 1)
    assert not leftovers(Path(ws.location), "x")


class Capsule:
    """Something of another library that hands Arrow data over."""

    def __init__(self, reader):
        self._reader = reader

    def __arrow_c_stream__(self, requested_schema=None):
        return self._reader.__arrow_c_stream__(requested_schema)


def test_what_is_no_table_in_a_stream_is_refused(ws):
    for item in ({"x": 1}, None, 7):
        with pytest.raises(InputError, match="item 1 of the stream is a") as caught:
            ws.create(f"of-{item!r:.1}".strip("{")).append(iter([pa.table({"x": [1]}), item]))
        assert caught.value.code == "NotATable"


def test_an_iterator_of_nothing_is_nothing(ws):
    ds = ws.create("x", merge=tl.merge.snapshot("x"))
    with pytest.raises(SchemaError, match="no column"):
        ds.append(iter([]))
    ds.append(pa.table({"x": [1]}))
    assert ds.append(iter([])).rows == 0
    assert ds.view().to_arrow().num_rows == 1, "not a snapshot without rows"


def test_a_stream_meets_what_others_do_meanwhile(ws, spooled):
    ds = ws.create("x", new_columns="add")

    def slow():
        yield pa.table({"day": pa.array([datetime(2026, 1, 1, tzinfo=UTC)]), "x": [1]})
        with tl.open(ws.location) as other:
            other["x"].append(pa.table({"x": [0], "more": ["a"]}))
        yield pa.table({"day": pa.array([datetime(2026, 1, 2, tzinfo=UTC)]), "x": [2]})

    ds.append(slow())
    assert ds.view().to_arrow().select(["x", "more", "day"]).column("x").to_pylist() == [0, 1, 2]
    assert ds.verify().ok


def test_a_stream_that_no_longer_fits_is_refused(ws, spooled):
    ds = ws.create("x")

    def slow():
        yield pa.table({"x": [1]})
        with tl.open(ws.location) as other:
            other["x"].append(pa.table({"x": ["text"]}))

    with pytest.raises(SchemaError, match="is Int64, the dataset has String"):
        ds.append(slow())
    assert ds.info.rows == 1


def test_a_stream_may_append_to_its_own_dataset(ws, spooled):
    ds = ws.create("x")

    def nested():
        yield pa.table({"x": [1]})
        ds.append(pa.table({"x": [0]}))
        yield pa.table({"x": [2]})

    ds.append(nested())
    assert records(ds)["x"].to_pylist() == [0, 1, 2]


def test_steps_prepare_a_stream(ws, spooled):
    doubled = Step(map=lambda _, t: t.set_column(0, "x", pa.array([2 * x.as_py() for x in t["x"]])))
    ds = ws.create("x")
    commit = ds.append(iter([pa.table({"x": [1]}), pa.table({"x": [2]})]), steps=[doubled])
    assert records(ds)["x"].to_pylist() == [2, 4]
    assert commit.rows == 2
    with pytest.raises(InputError, match="the stream failed"):
        ds.append(broken(ValueError("no more")), steps=[doubled])
    with pytest.raises(SchemaError, match="y: the first batch does not have it"):
        ds.append(iter([pa.table({"x": [1]}), pa.table({"x": [1], "y": [1]})]), steps=[doubled])
    assert len(list(slices(ds))) == 1


# Appends so many batches of 65,536 rows and says how much memory Arrow held at most, beside the one batch.
STREAM = """
import json, sys
from pathlib import Path
path, merge, batches, columns = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
import numpy as np, pyarrow as pa, trueline as tl
from trueline.run import Step
from trueline.view import View
rows = 1 << 16
table = pa.table({"id": np.arange(rows), **{f"c{n}": np.arange(rows) * n for n in range(columns - 1)}})
batch = table.to_batches()[0]
def stream():
    for n in range(batches):
        yield batch.set_column(0, "id", pa.array(np.arange(n * rows, (n + 1) * rows)))
with tl.open(path / "ws", create=True) as ws:
    ws.config.set("storage.durable", False)
    ds = ws.create("x", merge=tl.merge.append() if merge != "ledger" else tl.merge.ledger("id"))
    reader = pa.RecordBatchReader.from_batches(batch.schema, stream())
    commit = ds.append(stream() if merge != "reader" else reader, idempotency_key="k")
    if merge == "view":
        commit = ws.create("y").append(ds.view().filter("id >= 0"), idempotency_key="k")
    print(json.dumps([commit.rows, batch.nbytes * batches, pa.default_memory_pool().max_memory()]))
"""


def peak(path, merge, batches, columns):
    path.mkdir()
    command = [sys.executable, "-c", STREAM, str(path), merge, str(batches), str(columns)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    rows, size, most = json.loads(done.stdout)
    assert rows == batches << 16
    return size, most


@pytest.mark.sampled
@pytest.mark.parametrize("merge", some(["append", "reader", "view"], 2))
def test_memory_does_not_grow_with_the_stream(tmp_path, merge):
    size, most = peak(tmp_path / "large", merge, 80, 4)
    half, less = peak(tmp_path / "small", merge, 40, 4)
    assert size == 160 << 20 > 4 * stream.IN_MEMORY_BYTES
    # How many batches wait for the writer differs from run to run; what is kept would grow by the other half.
    assert most - less < (size - half) // 4


@pytest.mark.soak
@pytest.mark.parametrize("merge", ["append", "view", "ledger"])
def test_two_gigabytes_pass(tmp_path, merge):
    size, most = peak(tmp_path / "x", merge, 256, 16)
    assert size >= 2 << 30
    assert most < 1 << 30
