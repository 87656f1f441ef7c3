"""Appending: what may be handed in, what becomes of it, and what is refused."""

from __future__ import annotations

import struct
import threading
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.workspace.records import column, records, slices
from trueline.chain.instant import Instant
from trueline.chain.store.store import Folder
from trueline.errors import InputError, NotPortable, SchemaError
from trueline.identity import logical_hash


def test_rows_get_dense_offsets_in_their_own_order(ds):
    first = ds.append(pa.table({"x": [5, 3, 4]}))
    second = ds.append(pa.table({"x": [1]}))
    assert (first.rows, first.offsets, second.offsets) == (3, range(3), range(3, 4))
    assert column(ds, "x") == [5, 3, 4, 1]
    assert column(ds, "offset") == [0, 1, 2, 3]
    assert column(ds, "op") == [0, 0, 0, 0]
    assert (ds.head, ds.info.rows, ds.info.commits) == (second.block, 4, 3)
    assert ds.verify().ok


def test_all_rows_of_a_commit_have_its_time(ds):
    commit = ds.append(pa.table({"x": [1, 2]}))
    assert {int(t.timestamp() * 1000) for t in column(ds, "system_time")} == {
        int(commit.system_time) // 1_000_000
    }


def test_the_first_commit_sets_the_schema_and_later_ones_do_not(ds):
    assert ds.append(pa.table({"x": [1]})).events == ("SetDataSchema", "AddData")
    assert ds.append(pa.table({"x": [1]})).events == ("AddData",)


class Stream:
    """Something of another library that hands over Arrow data once."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        table, self.table = self.table, None
        return table.__arrow_c_stream__(requested_schema)


TABLE = pa.table({"x": [1, 2], "s": ["a", None]})


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        Stream(TABLE),
        {"x": [1, 2], "s": ["a", None]},
        TABLE.to_pylist(),
        [{"x": 1, "s": "a"}, {"x": 2}],
        TABLE.cast(pa.schema({"x": pa.int64(), "s": pa.large_string()})),
        TABLE.cast(pa.schema({"x": pa.int64(), "s": pa.string_view()})),
        TABLE.set_column(1, "s", TABLE["s"].dictionary_encode()),
        pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 1)]),
        pd.DataFrame({"x": [1, 2], "s": ["a", None]}),
        pd.DataFrame({"x": [0, 1, 2], "s": ["-", "a", None]}).query("x > 0"),
    ],
    ids=[
        "table", "batch", "reader", "stream", "columns", "rows", "uneven-rows", "large", "view", "dictionary",
        "chunks", "pandas", "pandas-filtered",
    ],
)  # fmt: skip
def test_whatever_the_rows_come_in_the_slice_says_the_same(ds, data):
    ds.append(data)
    assert records(ds).select(["x", "s"]).to_pylist() == TABLE.to_pylist()
    assert [(c.name, c.type, c.optional) for c in ds.stored_columns()] == [
        ("x", "Int64", True),
        ("s", "String", True),
    ]


@pytest.mark.parametrize("data", [None, 7, b"x", [1, 2], [{"x": 1}, 2], object()])
def test_other_things_are_refused_with_what_can_be_given(ds, data):
    head = ds.head
    with pytest.raises(InputError) as caught:
        ds.append(data)
    assert "Arrow table" in caught.value.remedy
    assert ds.head == head


def test_rows_that_do_not_make_a_column_are_refused_by_its_name(ds):
    with pytest.raises(SchemaError, match=r"column 'x': row 1 .* is 'a', a str"):
        ds.append([{"x": 1}, {"x": "a"}])
    ds.append(pa.table({"x": [1.5]}))
    assert ds.append([{"x": 2}]).rows == 1, "an int is read as what the dataset has"
    with pytest.raises(SchemaError, match=r"column 'x': row 0 .* which is not double"):
        ds.append([{"x": "a"}])


# --- schemas ----------------------------------------------------------------------


def required(name):
    return pa.field(name, pa.float64(), nullable=False)


def test_a_table_that_does_not_fit_is_refused_with_every_difference(ds):
    ds.append(pa.table({"a": [1], "b": ["x"]}))
    head = ds.head
    with pytest.raises(SchemaError) as caught:
        ds.append(pa.table({"a": ["1"], "c": [1.0]}, schema=pa.schema([("a", pa.string()), required("c")])))
    assert caught.value.differences == (
        "+ c: Float64 is not a column of the dataset",
        "~ a: is String, the dataset has Int64",
    )
    assert ds.head == head


def test_a_column_that_is_added_is_optional_also_where_the_table_has_no_nulls(ds):
    """Frames of Spark have such columns wherever a value cannot be null: `range`, literals."""
    ds.append(pa.table({"a": [1]}))
    added = pa.table({"a": [2], "c": [1.5]}, schema=pa.schema([("a", pa.int64()), required("c")]))
    ds.append(added, new_columns="add")
    ds.append(pa.table({"a": [3]}))
    assert ds.view().select("a", "c").to_arrow().to_pylist() == [
        {"a": 1, "c": None}, {"a": 2, "c": 1.5}, {"a": 3, "c": None},
    ]  # fmt: skip
    assert ds.verify().ok
    with pytest.raises(SchemaError, match="d: Null cannot be added: every value is null"):
        ds.append(pa.table({"a": [2], "d": pa.nulls(1)}), new_columns="add")


def test_missing_optional_columns_are_missing_values_and_order_does_not_matter(ds):
    ds.append(pa.table({"a": [1], "b": ["x"], "c": [1.0]}))
    ds.append(pa.table({"c": [2.0], "a": [2]}))
    assert records(ds).select(["a", "b", "c"]).to_pylist()[1] == {"a": 2, "b": None, "c": 2.0}
    assert ds.append(pa.table({"a": pa.nulls(1)})).rows == 1, (
        "a column without any value fits an optional one"
    )


def test_required_columns_must_be_there_and_full(ws):
    ds = ws.create("x", schema=pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64())]))
    with pytest.raises(SchemaError, match="- a: Int64 is missing"):
        ds.append(pa.table({"b": [1]}))
    with pytest.raises(SchemaError, match="1 null values"):
        ds.append(pa.table({"a": [1, None]}))
    assert ds.append(pa.table({"a": [1]})).rows == 1


@pytest.mark.parametrize("name", ["offset", "op", "system_time"])
def test_a_column_named_like_a_system_column_is_refused_with_the_remedy(ds, name):
    for _ in range(2):
        with pytest.raises(SchemaError, match="system column") as caught:
            ds.append(pa.table({name: [1]}))
        assert "rename" in caught.value.remedy
        ds.append(pa.table({"x": [1]}))


def test_a_column_without_a_type_cannot_define_a_dataset(ds):
    with pytest.raises(SchemaError, match="every value is null"):
        ds.append([{"x": None}])


def test_two_columns_of_one_name_are_refused(ds):
    with pytest.raises(SchemaError, match="occurs twice"):
        ds.append(pa.table([[1], [2]], names=["x", "x"]))


def test_a_table_without_columns_is_refused(ds):
    for nothing in (pa.table({}), []):
        with pytest.raises(SchemaError, match="no column"):
            ds.append(nothing)


@pytest.mark.parametrize(
    "kind", [pa.duration("s"), pa.map_(pa.string(), pa.int64()), pa.list_(pa.struct({"a": pa.int64()}))]
)
def test_shapes_whose_hash_is_not_portable_are_refused(ds, kind):
    head = ds.head
    with pytest.raises(NotPortable):
        ds.append(pa.table({"x": pa.array([None], kind)}))
    assert ds.head == head


# --- event time and watermarks -------------------------------------------------------


def test_the_event_time_stands_fourth_in_milliseconds_utc(ws):
    ds = ws.create("x", event_time="at")
    zone = timezone(timedelta(hours=2))
    ds.append([{"n": 1, "at": datetime(2026, 1, 1, 12, tzinfo=zone)}])
    table = records(ds)
    assert table.column_names == ["offset", "op", "system_time", "at", "n"]
    assert table.schema.field("at").type == pa.timestamp("ms", "UTC")
    assert table["at"].to_pylist() == [datetime(2026, 1, 1, 10, tzinfo=UTC)]
    assert ds.columns == ("at", "n")


def test_precision_below_a_millisecond_is_cut_down_and_counted(ws):
    ds = ws.create("x", event_time="at")
    times = [1_999, -1, 2_000, None]  # microseconds
    commit = ds.append(pa.table({"at": pa.array(times, pa.timestamp("us", "UTC"))}))
    assert records(ds)["at"].cast(pa.int64()).to_pylist() == [1, -1, 2, None]
    assert commit.rounded == 2
    assert next(ds.log()).rounded == 2


def test_other_timestamps_keep_their_unit(ds):
    table = pa.table(
        {"ns": pa.array([1], pa.timestamp("ns")), "us": pa.array([1], pa.timestamp("us", "Europe/Zurich"))}
    )
    ds.append(table)
    assert records(ds).select(["ns", "us"]).schema == table.schema
    assert records(ds).select(["ns", "us"]).equals(table)


def test_dates_are_event_times_too(ws):
    ds = ws.create("x", event_time="day")
    commit = ds.append([{"day": date(2026, 1, 2)}, {"day": date(2026, 1, 1)}])
    assert records(ds).schema.field("day").type == pa.date32()
    assert commit.watermark == Instant.parse("2026-01-02T00:00:00Z")


def test_an_event_time_of_another_type_is_refused(ws):
    ds = ws.create("x", event_time="at")
    with pytest.raises(SchemaError, match="cast it to a timestamp"):
        ds.append([{"at": "2026-01-01"}])
    with pytest.raises(SchemaError, match="no such column"):
        ds.append([{"x": 1}])


def test_without_an_event_time_the_slice_has_an_empty_one(ds):
    ds.append(pa.table({"x": [1]}))
    assert column(ds, "event_time") == [None]
    assert records(ds).schema.field("event_time").type == pa.timestamp("ms", "UTC")
    assert ds.columns == ("x",)
    assert ds.info.watermark is None


def test_a_column_called_event_time_is_the_event_time(ds):
    ds.append(pa.table({"x": [1]}))
    commit = ds.append([{"x": 2, "event_time": datetime(2026, 1, 1, tzinfo=UTC)}])
    assert commit.events == ("SetVocab", "AddData")
    assert commit.watermark == Instant.parse("2026-01-01T00:00:00Z")
    assert ds.columns == ("event_time", "x")
    assert ds.verify().ok


def test_the_watermark_never_goes_back(ws):
    ds = ws.create("x", event_time="day")
    assert str(ds.append([{"day": date(2026, 1, 5)}]).watermark) == "2026-01-05T00:00:00Z"
    assert str(ds.append([{"day": date(2026, 1, 1)}]).watermark) == "2026-01-05T00:00:00Z"
    assert (
        str(ds.append([{"day": date(2026, 1, 9)}], watermark="2026-01-06").watermark)
        == "2026-01-06T00:00:00Z"
    )
    assert (
        str(ds.append([{"day": date(2026, 1, 1)}], watermark=date(2026, 1, 1)).watermark)
        == "2026-01-06T00:00:00Z"
    )
    moment = datetime(2026, 2, 1, tzinfo=UTC)
    assert str(ds.append([{"day": None}], watermark=moment).watermark) == "2026-02-01T00:00:00Z"
    for wrong in (datetime(2026, 1, 1), 7, "soon"):
        with pytest.raises(InputError):
            ds.append([{"day": None}], watermark=wrong)


def test_an_event_time_no_block_can_hold_is_refused_by_its_column(ws):
    ds = ws.create("x", event_time="at")
    with pytest.raises(SchemaError, match=r"column 'at'.*9999"):
        ds.append(pa.table({"at": pa.array([10**15], pa.timestamp("ms", "UTC"))}))


# --- nothing to add ---------------------------------------------------------------------


def test_an_empty_table_records_nothing(ds):
    ds.append(pa.table({"x": [1]}))
    head = ds.head
    commit = ds.append(pa.table({"x": pa.array([], pa.int64())}))
    assert (commit.rows, commit.block, commit.blocks, commit.offsets) == (0, head, (), range(1, 1))
    assert ds.append([]).rows == 0
    assert ds.head == head
    with pytest.raises(SchemaError):
        ds.append(pa.table({"x": pa.array([], pa.string())}))


def test_an_empty_table_may_move_the_watermark(ds):
    ds.append(pa.table({"x": [1]}))
    commit = ds.append([], watermark="2026-01-01")
    assert (commit.rows, commit.events, commit.block) == (0, ("AddData",), ds.head)
    assert ds.append([], watermark="2026-01-01").blocks == ()
    assert ds.append(pa.table({"x": [2]})).offsets == range(1, 2)
    assert str(ds.info.watermark) == "2026-01-01T00:00:00Z"
    assert ds.verify().ok


def test_an_empty_first_table_defines_nothing(ds):
    assert ds.append(pa.table({"x": pa.array([], pa.int64())})).blocks == ()
    assert ds.schema is None


# --- once only ----------------------------------------------------------------------------


def test_the_same_key_and_data_again_is_the_first_commit(ds):
    first = ds.append(pa.table({"x": [1]}), idempotency_key="k1")
    ds.append(pa.table({"x": [1]}))
    assert ds.append(pd.DataFrame({"x": [1]}), idempotency_key="k1") == first
    assert ds.info.rows == 2
    assert first.idempotency_key == "k1"


def test_the_same_key_with_other_data_is_an_error(ds):
    first = ds.append(pa.table({"x": [1]}), idempotency_key="k1")
    with pytest.raises(InputError, match="other data") as caught:
        ds.append(pa.table({"x": [2]}), idempotency_key="k1")
    assert (caught.value.code, caught.value.commit) == ("KeyReused", first.block)
    assert ds.info.rows == 1


def test_a_key_is_known_in_another_process_and_after_the_index_is_lost(ws, ds):
    first = ds.append(pa.table({"x": [1]}), idempotency_key="k1")
    ws.close()
    ws._index_path("trades").unlink()
    with tl.open(ws.location) as again:
        assert again["trades"].append(pa.table({"x": [1]}), idempotency_key="k1") == first


def test_a_key_is_known_for_as_long_as_its_commit_is_in_the_chain(ws, ds):
    before = ds.append(pa.table({"x": [0]}))
    first = ds.append(pa.table({"x": [1]}), idempotency_key="k1")
    for n in range(30):
        ds.append(pa.table({"x": [n]}))
    assert ds.append(pa.table({"x": [1]}), idempotency_key="k1") == first
    ds.chain.reset(before.block)
    with tl.open(ws.location) as again:
        assert again["trades"].append(pa.table({"x": [1]}), idempotency_key="k1").offsets == first.offsets
        assert again["trades"].info.rows == 2


@pytest.mark.parametrize("key", ["", "x" * 513, 7, b"k"])
def test_a_bad_key_is_refused(ds, key):
    with pytest.raises(InputError, match="idempotency key"):
        ds.append(pa.table({"x": [1]}), idempotency_key=key)


# --- others ---------------------------------------------------------------------------------


@pytest.mark.contract("chain:C8")
def test_a_lost_race_is_run_again_behind_the_winner(ws):
    ds = ws.create("trades", event_time="day")

    class Slow(Stream):
        def __arrow_c_stream__(self, requested_schema=None):
            with tl.open(ws.location) as other:
                other["trades"].append([{"day": date(2026, 3, 1), "x": 10}])
            return super().__arrow_c_stream__(requested_schema)

    commit = ds.append(Slow(pa.table({"day": [date(2026, 1, 1)], "x": [20]})))
    assert commit.offsets == range(1, 2)
    assert str(commit.watermark) == "2026-03-01T00:00:00Z"
    assert column(ds, "x") == [10, 20]
    assert column(ds, "offset") == [0, 1]
    assert commit.events == ("AddData",), "the winner has set the schema"
    assert ds.verify().ok


def test_rows_that_no_longer_fit_after_a_lost_race_are_refused(ws, ds):
    class Slow(Stream):
        def __arrow_c_stream__(self, requested_schema=None):
            with tl.open(ws.location) as other:
                other["trades"].append(pa.table({"x": ["text"]}))
            return super().__arrow_c_stream__(requested_schema)

    with pytest.raises(SchemaError, match="is Int64, the dataset has String"):
        ds.append(Slow(pa.table({"x": [1]})))
    assert ds.info.rows == 1


def test_threads_may_append_at_once(ds):
    def work(number):
        for step in range(10):
            ds.append(pa.table({"x": [number * 100 + step]}))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert column(ds, "offset") == list(range(40))
    assert sorted(column(ds, "x")) == sorted(number * 100 + step for number in range(4) for step in range(10))
    assert ds.verify().ok


def odd_nans(width):
    bits = {2: 0xFE01, 4: 0xFFC00001, 8: 0xFFF8000000000001}[width]
    return np.array([bits], f"u{width}").view(f"f{width}")[0]


def nested(kind):
    odd = pa.array([odd_nans(8), 1.0, odd_nans(8)])
    return {
        "list": pa.ListArray.from_arrays([0, 2, 3], odd),
        "list-with-null": pa.array([[1.0], None, [2.0]], pa.list_(pa.float64())),
        "struct": pa.StructArray.from_arrays([odd, pa.array([1, 2, 3])], ["f", "i"]),
        "fixed": pa.FixedSizeListArray.from_arrays(odd, 3),
        "sliced": pa.ListArray.from_arrays([0, 1, 2, 3], odd).slice(1),
    }[kind]


@pytest.mark.parametrize("width", [2, 4, 8])
def test_every_nan_is_stored_with_one_bit_pattern(ws, width):
    one, other = ws.create("one"), ws.create("other")
    kind = {2: pa.float16(), 4: pa.float32(), 8: pa.float64()}[width]
    plain = np.array([1, np.nan, 2], f"f{width}")
    odd = plain.copy()
    odd[1] = odd_nans(width)
    one.append(pa.table({"x": pa.array(plain, kind)}))
    other.append(pa.table({"x": pa.array(odd, kind)}))
    tables = [records(d).select(["x"]) for d in (one, other)]
    assert logical_hash(tables[0]) == logical_hash(tables[1])


@pytest.mark.parametrize("kind", ["list", "list-with-null", "struct", "fixed", "sliced"])
def test_nans_inside_lists_and_structs_too(ds, kind):
    array = nested(kind)
    ds.append(pa.table({"x": array}))
    ((_, table),) = slices(ds)
    assert table["x"].to_pylist().__repr__() == array.to_pylist().__repr__()
    raw = table["x"].combine_chunks()
    while not pa.types.is_floating(raw.type):
        raw = raw.field(0) if pa.types.is_struct(raw.type) else raw.flatten()
    bits = {struct.pack("<d", value).hex() for value in raw.to_numpy(zero_copy_only=False) if np.isnan(value)}
    assert bits <= {"000000000000f87f"}


VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=10),
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=10),
    pa.date32(): st.dates(),
    pa.decimal128(12, 2): st.decimals(-1000, 1000, places=2).map(Decimal),
    pa.list_(pa.int32()): st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
}


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    rows = draw(st.integers(1, 5))
    columns = [
        pa.array(draw(st.lists(st.none() | VALUES[k], min_size=rows, max_size=rows)), k) for k in kinds
    ]
    return pa.table(columns, names=[f"c{i}" for i in range(len(kinds))])


@settings(max_examples=examples(25))
@given(st.data())
def test_what_is_appended_is_what_is_read(tmp_path_factory, data):
    table = data.draw(tables())
    with tl.open(tmp_path_factory.mktemp("p"), create=True) as ws:
        ws.config.set("storage.durable", False)
        ds = ws.create("x")
        cut = data.draw(st.integers(0, table.num_rows))
        for part in (table.slice(0, cut), table.slice(cut)):
            ds.append(part)
        assert records(ds).select(table.column_names).to_pylist() == table.to_pylist()
        assert column(ds, "offset") == list(range(table.num_rows))
        for told, found in slices(ds):
            assert logical_hash(found) == told.logical_hash
            assert ds.chain.store.size(Folder.DATA, told.physical_hash) == told.size
        assert ds.verify().ok
