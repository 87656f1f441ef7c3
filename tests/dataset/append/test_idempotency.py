"""Rows have one digest, however they are handed in; digests of earlier versions are still known."""

from __future__ import annotations

import datetime as dt
import shutil
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.architecture import ROOT
from tests.examples import examples
from trueline.dataset.append.incoming import Incoming, from_table
from trueline.dataset.append.pieces import IncomingPiece, PieceWriter
from trueline.dataset.commit import commit_record
from trueline.errors import InputError
from trueline.kernel.row_fingerprint import Fingerprint
from trueline.kernel.tasks import InlineTasks
from trueline.kernel.value_hash import Salt, hash_values

GOLDEN = ROOT / "tests" / "golden" / "workspace-bitwise-keys"
DAY = dt.date(2026, 1, 2)
TABLE = pa.table(
    {
        "n": [1, None, 3, 4],
        "u": pa.array([1, 2, 3, 2**64 - 1], pa.uint64()),
        "x": [0.5, -0.0, float("nan"), None],
        "h": pa.array(np.array([0.5, 1, 2, 3], np.float16)),
        "s": ["a", "", None, "long " * 99],
        "b": [b"\0", None, b"", b"x"],
        "f": pa.array([b"abc", None, b"def", b"ghi"], pa.binary(3)),
        "t": [True, False, None, True],
        "d": [Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.00")],
        "day": [DAY, None, DAY, DAY],
        "at": pa.array([1, None, 3, 4], pa.timestamp("us", "UTC")),
        "l": [[1, 2], None, [], [3]],
        "r": [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": "z"}],
    }
)


def digest(commit, ds) -> str:
    return (commit_record(ds.chain.block(commit.block)).notes or {})["digest"]


def forms(table: pa.Table) -> dict[str, object]:
    """The same rows as a table, in other chunks, as batches and as a stream."""
    pieces = [table.slice(n, 1) for n in range(table.num_rows)]
    batches = [batch for piece in pieces for batch in piece.to_batches()]
    return {
        "chunks": pa.concat_tables(pieces),
        "one chunk": table.combine_chunks(),
        "slice": pa.concat_tables([table, table]).slice(0, table.num_rows),
        "reader": pa.RecordBatchReader.from_batches(table.schema, batches),
        "columns turned round": table.select(table.column_names[::-1]),
        "large text": table.set_column(4, "s", table["s"].cast(pa.large_string())),
    }


@pytest.mark.parametrize("form", forms(TABLE))
def test_the_same_rows_in_another_form_are_the_same_data(ws, form):
    ds = ws.create("x")
    first = ds.append(TABLE, idempotency_key="k")
    assert ds.append(forms(TABLE)[form], idempotency_key="k").block == first.block
    other = ws.create("y")
    assert digest(other.append(forms(TABLE)[form], idempotency_key="k"), other) == digest(first, ds)


@pytest.mark.parametrize("column", TABLE.column_names)
def test_a_value_that_differs_is_other_data(ws, column):
    ds = ws.create("x")
    ds.append(TABLE, idempotency_key="k")
    place = TABLE.column_names.index(column)
    turned = TABLE.set_column(place, column, TABLE[column].take(pa.array([1, 0, 2, 3])))
    with pytest.raises(InputError) as refused:
        ds.append(turned, idempotency_key="k")
    assert refused.value.code == "KeyReused"
    with pytest.raises(InputError):
        ds.append(TABLE.slice(1), idempotency_key="k")


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(st.integers(0, 9), st.text(max_size=3)), min_size=1), data=st.data())
def test_rows_that_stream_through_files_have_the_digest_of_a_table(ws, rows, data):
    table = pa.table({"n": [n for n, _ in rows], "s": [s for _, s in rows]})
    name = f"d{len(list(ws))}"
    tail = ws.create(name).chain.tail()
    whole = from_table(table, tail, with_op=False).with_digest(InlineTasks())
    cut = data.draw(st.integers(0, len(rows)))
    with ws[name].chain.store.scratch() as scratch:
        streamed = _streamed(whole, scratch, cut)
        assert streamed.with_digest(InlineTasks()).digest == whole.digest
    assert whole.digest == str(Fingerprint.of(table, ["n", "s"]))


def _streamed(whole: Incoming, scratch, cut: int) -> Incoming:
    (piece,) = whole.pieces
    pieces: list[IncomingPiece] = []
    for start, stop in ((0, cut), (cut, piece.rows)):
        writer = PieceWriter(scratch, f"piece-{start}-{stop}", piece.table.schema)
        for table in piece.read(start, stop):
            writer.write(table)
        pieces.append(writer.finish())
    return Incoming(tuple(pieces), whole.schema, whole.vocab, given=whole.given)


@pytest.fixture
def earlier(tmp_path):
    """A copy of a workspace whose commits have the digests of an earlier version."""
    shutil.copytree(GOLDEN, tmp_path / "earlier")
    with tl.open(tmp_path / "earlier") as ws:
        yield ws


def test_a_commit_with_the_digest_of_an_earlier_version_is_known_again(earlier):
    plain, readings = earlier["plain"], earlier["readings"]
    table = pa.table({"n": [1, 2, 3], "x": [0.0, -0.0, 1.0]})
    heads = plain.head, readings.head
    recorded = plain.append(table, idempotency_key="table")
    assert not digest(recorded, plain).startswith("rows:")
    for form in (table, pa.concat_tables([table.slice(0, 1), table.slice(1)]), table.to_pandas()):
        assert plain.append(form, idempotency_key="table").block == recorded.block
    first = pa.table({"x": [0.0, -0.0, 1.5, float("nan")], "v": ["plus", "minus", "more", "nan"]})
    readings.append(first, idempotency_key="first")
    assert (plain.head, readings.head) == heads
    for other in (table.slice(1), pa.table({"n": [1, 2, 3], "x": [0.0, 0.0, 1.0]})):
        with pytest.raises(InputError) as refused:
            plain.append(other, idempotency_key="table")
        assert refused.value.code == "KeyReused"


def test_files_and_tables_are_not_mistaken_for_one_another(ws, tmp_path):
    ds = ws.create("x")
    table = pa.table({"n": [1, 2]})
    pq.write_table(table, tmp_path / "rows.parquet")
    ds.append(tmp_path / "rows.parquet", idempotency_key="k")
    with pytest.raises(InputError) as refused:
        ds.append(table, idempotency_key="k")
    assert refused.value.code == "KeyReused"


def test_both_hashes_of_these_rows_never_change():
    """One is stored with a commit, the other decides who is in which split."""
    assert str(Fingerprint.of(TABLE, TABLE.column_names)) == "rows:4:3b9a9ce7a43c104d"
    columns = [TABLE[name].combine_chunks() for name in TABLE.column_names if name not in ("l", "r", "h")]
    assert hash_values(columns, 4, Salt.of("golden", 7)).tolist() == [
        12305951175443824615,
        9859786581304125135,
        17303871227969465019,
        204089097871861313,
    ]
