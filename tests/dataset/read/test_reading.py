"""Reading append datasets: any commit, few files, few columns, and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trueline as tl
from tests.dataset.read.histories import History
from trueline.chain.events import OffsetInterval
from trueline.chain.store.store import Folder
from trueline.dataset.read import slice_reader as slices
from trueline.errors import CorruptionError, InputError, ObjectMissing, SchemaError

DATA = pa.schema({"day": pa.date32(), "x": pa.int64(), "city": pa.string()})


def month(number: int, count: int = 10) -> pa.Table:
    return pa.table(
        {
            "day": [date(2026, number, n % 28 + 1) for n in range(count)],
            "x": range(number * 1000, number * 1000 + count),
            "city": [f"c{n}" for n in range(count)],
        }
    )


@pytest.fixture
def history():
    """A year: one slice a month."""
    history = History(DATA, event_time="day")
    for number in range(1, 13):
        history.add(month(number))
    history.store.reset()
    return history


@pytest.fixture
def read_groups(monkeypatch):
    """Counts the groups of rows that are read, with their columns."""
    seen = []
    read = slices._batches

    def counted(parquet, number, names, lacking=0):
        seen.append(list(names))
        return read(parquet, number, names, lacking)

    monkeypatch.setattr(slices, "_batches", counted)
    return seen


def test_all_records_are_current_rows_in_the_order_of_offsets(history):
    view = history.view()
    assert view.row_count == view.count() == 120
    expected = pa.concat_tables([month(n) for n in range(1, 13)])
    assert view.to_arrow().cast(expected.schema).equals(expected)


def test_system_columns_are_shown_if_asked_for(history):
    assert history.view().schema.names == ("day", "x", "city")
    whole = history.view(system=True)
    assert whole.schema.names == ("offset", "op", "system_time", "day", "x", "city")
    assert whole.to_arrow()["offset"].to_pylist() == list(range(120))


def test_an_event_time_that_nobody_declared_is_hidden():
    history = History(pa.schema({"x": pa.int64()}))
    history.add(pa.table({"x": [1]}))
    assert history.view().schema.names == ("x",)
    assert "event_time" in history.view(system=True).schema


def test_a_view_stays_at_its_commit(history):
    view = history.view()
    history.add(month(1))
    assert view.count() == view.to_arrow().num_rows == 120
    assert history.view().count() == 130
    assert history.view(at=history.ends[3]).to_arrow()["x"].to_pylist()[-1] == 3009


def test_origins_say_exactly_which_records_it_was_made_from(history):
    origin = history.view(at=19).filter("x > 1").select("x").origins["trades"]
    assert (origin.dataset, origin.block, origin.offset) == ("trades", history.ends[2], 19)
    assert origin.id.startswith("did:odf:")
    assert "19" in str(origin)


def test_a_dataset_without_data_has_a_view_without_rows():
    history = History(DATA)
    assert history.view().to_arrow().shape == (0, 3)
    assert history.changes().count() == 0
    assert history.get({"x": 1}) is None


# --- cost -------------------------------------------------------------------------


def test_opening_a_view_costs_the_same_whatever_the_history():
    counts = []
    for length in (10, 1000):
        history = History(DATA)
        history.add(month(1))
        for number in range(length):
            history.describe(str(number))
        history.view()
        history.store.reset()
        assert history.view().count() == 10
        counts.append(history.store.block_reads)
    assert counts[0] == counts[1] <= 6


def test_a_view_reads_the_blocks_of_its_slices_and_no_others(history):
    for number in range(500):
        history.describe(str(number))
    view = history.view()
    history.store.reset()
    assert view.to_arrow().num_rows == 120
    assert history.store.block_reads == 12
    assert history.store.gets[Folder.DATA] == 12


def test_counting_reads_nothing(history):
    view = history.view()
    history.store.reset()
    assert view.count() == 120
    assert view.skip(100).count() == 20
    assert not history.store.gets


def test_only_the_columns_asked_for_are_read(history, read_groups):
    history.view().select("x").to_arrow()
    history.view().filter("city = 'c1'").select("x").to_arrow()
    history.view().filter("city = 'c1'").count()
    assert [sorted(names) for names in read_groups] == [["x"]] * 12 + [["city", "x"]] * 12 + [["city"]] * 12


def test_a_limit_reads_only_the_slices_it_needs(history):
    view = history.view().skip(15).limit(10)
    history.store.reset()
    assert view.to_arrow().num_rows == 10
    assert history.store.gets[Folder.DATA] == 3


def test_a_filter_on_event_time_skips_slices_that_cannot_match(history, read_groups):
    view = history.view().filter("day >= :a and day < :b", a=date(2026, 3, 5), b=date(2026, 5, 1))
    assert view.count() == 6 + 10
    assert len(read_groups) == 2


def test_what_was_learnt_of_event_times_is_not_looked_up_again(history):
    view = history.view().filter("day >= date'2026-12-01'")
    assert view.count() == 10
    history.store.reset()
    assert history.view().filter("day >= date'2026-12-01'").select("x").to_arrow().num_rows == 10
    assert history.store.gets[Folder.DATA] == 1
    history.store.reset()
    assert history.view().filter("day > date'2030-01-01'").count() == 0
    assert history.store.gets[Folder.DATA] == 0


def test_a_filter_on_offset_skips_slices_and_cuts_them(history, read_groups):
    view = history.view(system=True).filter("offset between 25 and 31").select("x")
    assert view.to_arrow()["x"].to_pylist() == [3005, 3006, 3007, 3008, 3009, 4000, 4001]
    assert len(read_groups) == 2


def test_groups_of_rows_that_cannot_match_are_not_read(read_groups):
    history = History(DATA, event_time="day")
    history.add(pa.concat_tables([month(n) for n in range(1, 13)]), row_group_size=10)
    assert history.view().filter("day between '2026-03-01' and '2026-04-30'").count() == 20
    assert len(read_groups) == 2
    assert history.view(system=True).filter("offset = 119").select("x").to_arrow()["x"].to_pylist() == [12009]
    assert len(read_groups) == 3


def test_records_without_an_event_time_are_skipped_and_never_lost(read_groups):
    history = History(DATA, event_time="day")
    history.add(pa.table({"day": pa.array([None] * 5, pa.date32()), "x": range(5)}))
    history.add(month(2))
    assert history.view().filter("day >= '1900-01-01'").count() == 10
    assert len(read_groups) == 1
    assert history.view().filter("day is null").count() == 5


def test_groups_of_rows_without_an_event_time_are_skipped_and_remembered(read_groups):
    history = History(DATA, event_time="day")
    nothing = pa.table({"day": pa.array([None] * 10, pa.date32()), "x": range(10)})
    history.add(nothing)
    history.add(pa.concat_tables([nothing, month(3).drop_columns(["city"])]), row_group_size=10)
    assert history.view().filter("day >= '2026-01-01'").count() == 10
    assert len(read_groups) == 1
    history.store.reset()
    assert history.view().filter("day >= '2026-01-01'").count() == 10
    assert history.store.gets[Folder.DATA] == 1
    history.store.reset()
    assert history.view().filter("day >= '2026-06-01'").count() == 0
    assert history.store.gets[Folder.DATA] == 0


def test_files_without_statistics_are_read_and_not_skipped(read_groups):
    history = History(DATA, event_time="day")
    history.add(month(1), write_statistics=False)
    history.add(month(2), write_statistics=False)
    assert history.view().filter("day >= '2026-02-01'").count() == 10
    assert len(read_groups) == 2


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_event_times_of_any_unit_are_skipped_rightly(unit):
    kind = pa.timestamp(unit, "UTC")
    history = History(pa.schema({"t": kind, "x": pa.int64()}), event_time="t")
    times = pc.assume_timezone(pa.array([-3, -1, 0, 1, 2, 10**6], pa.timestamp("s")), "UTC").cast(kind)
    for number in range(0, 6, 2):
        history.add(pa.table({"t": times[number : number + 2], "x": [number, number + 1]}))
    for limit in ("1969-12-31T23:59:59Z", "1970-01-01", "1970-01-01T00:00:01.000000001Z", "1970-01-05"):
        for op in ("<", "<=", ">", ">=", "="):
            text = f"t {op} timestamp'{limit}'"
            everything = tl.View.from_arrow(history.view().to_arrow())
            assert history.view().filter(text).to_arrow() == everything.filter(text).to_arrow(), text


# --- commits of several parts ---------------------------------------------------------


def test_a_commit_of_several_parts_is_seen_whole_or_not_at_all():
    history = History(DATA, event_time="day")
    first = history.add(month(1))
    history.add(month(2, 20), parts=4)
    assert history.view().count() == 30
    assert history.view(at=first.hash).count() == 10
    inside = history.chain.entry_number(history.chain.entry(history.chain.head).sequence_number - 2)
    with pytest.raises(InputError, match="inside a commit"):
        history.view(at=inside.hash)
    with pytest.raises(InputError, match="inside a commit"):
        history.changes(after=14)


# --- schemas ----------------------------------------------------------------------------


def test_a_column_added_later_is_missing_in_older_slices(history):
    history.evolve(pa.schema([*DATA, pa.field("extra", pa.float64())]))
    history.add(month(1).append_column("extra", pa.array([0.5] * 10)))
    view = history.view()
    assert view.select("extra").to_arrow()["extra"].to_pylist() == [None] * 120 + [0.5] * 10
    assert view.filter("extra > 0").count() == 10
    assert "extra" not in history.view(at=119).schema


def test_a_slice_of_another_writer_is_read_in_the_types_of_the_dataset():
    history = History(DATA, event_time="day")
    records = history.records(month(1), 0)
    names = ["offset", "op", "system_time", "day", "x", "city"]
    kinds = [pa.int64(), pa.int32(), pa.timestamp("us", "UTC"), pa.date32(), pa.int32(), pa.large_string()]
    columns = [records[name].cast(kind) for name, kind in zip(names, kinds, strict=True)]
    history.records = lambda rows, first: pa.table(columns, names=names)
    history.add(month(1))
    assert history.view(system=True).to_arrow().schema == history.view(system=True).schema.to_arrow()
    assert history.view().to_arrow()["city"].to_pylist() == month(1)["city"].to_pylist()


def test_columns_with_dots_and_nested_columns_are_told_apart():
    inner = pa.struct({"b": pa.int64()})
    history = History(pa.schema({"a": inner, "c.d": pa.int64(), "c": pa.int64()}))
    history.add(pa.table({"a": pa.array([{"b": 1}], inner), "c.d": [2], "c": [3]}))
    assert history.view().to_arrow().to_pylist() == [{"a": {"b": 1}, "c.d": 2, "c": 3}]
    assert history.view().select("c.d").to_arrow().to_pylist() == [{"c.d": 2}]
    assert history.view().select("c").to_arrow().to_pylist() == [{"c": 3}]


# --- damage -------------------------------------------------------------------------------


def spoilt(change) -> History:
    """A dataset whose only slice is written wrongly."""
    history = History(DATA, event_time="day")
    write = history.write

    def wrong(records, first, **layout):
        stored = write(change(records), first, **layout)
        return replace(stored, offset_interval=OffsetInterval(first, first + records.num_rows - 1))

    history.write = wrong
    history.add(month(1))
    return history


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.slice(1), "holds 9 records, its block says 10"),
        (lambda t: pa.concat_tables([t, t]), "holds 20 records"),
        (lambda t: t.set_column(0, "offset", pc.add(t["offset"], 5)), "offsets 5 to 14"),
        (lambda t: t.drop_columns(["offset"]), "no column 'offset'"),
        (lambda t: t.set_column(3, "day", pa.array(["x"] * 10)), "of type string"),
    ],
)
def test_a_slice_that_is_not_what_its_block_says_is_named(change, says):
    history = spoilt(change)
    with pytest.raises(CorruptionError, match=says) as caught:
        history.view(system=True).to_arrow()
    assert caught.value.code == "SliceDamaged"
    assert caught.value.block == history.ends[-1]
    assert caught.value.file in caught.value.problem
    assert "verify trades" in caught.value.remedy


def test_offsets_in_disorder_are_found_when_they_are_read():
    order = pa.array([0, 2, 1, *range(3, 10)])
    history = spoilt(lambda t: t.set_column(0, "offset", t["offset"].take(order)))
    with pytest.raises(CorruptionError, match="not dense"):
        history.view(system=True).to_arrow()


def test_a_missing_slice_is_named_with_its_block(history):
    block = history.chain.block(history.ends[3])
    name = block.event.new_data.physical_hash
    history.store.delete(Folder.DATA, name)
    with pytest.raises(ObjectMissing, match=str(name)) as caught:
        history.view().to_arrow()
    assert (caught.value.code, caught.value.block) == ("SliceMissing", history.ends[3])
    assert "restore" in caught.value.remedy
    assert history.view(at=19).count() == 20
    assert history.view().filter("day >= '2026-11-01'").limit(0).count() == 0


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: raw[:-10], lambda raw: b"PAR1" + b"\0" * 50])
def test_a_file_that_is_no_parquet_is_damage(tmp_path, damage):
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("trades")
        ds.append(pa.table({"x": [1]}))
        (path,) = (tmp_path / "datasets" / "trades" / "data").iterdir()
        raw = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(damage(raw))
        with pytest.raises(CorruptionError, match=path.name):
            ds.view().to_arrow()


def test_a_view_that_was_cut_off_by_a_reset_says_so(history):
    view = history.view()
    history.chain.reset(history.ends[3])
    with pytest.raises(InputError, match="not on the present branch"):
        view.to_arrow()


# --- through the workspace ------------------------------------------------------------------


def test_a_dataset_offers_all_of_it(tmp_path):
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("sales", event_time="day")
        first = ds.append(pa.table({"day": [date(2026, 1, 1)], "city": ["Bern"]}))
        ds.append(pa.table({"day": [date(2026, 1, 2)], "city": ["Zug"]}))
        assert ds.view().to_arrow()["city"].to_pylist() == ["Bern", "Zug"]
        assert ds.view(at=first).count() == 1
        assert ds.diff(first).to_arrow().to_pylist() == [
            {"op": "insert", "day": date(2026, 1, 2), "city": "Zug"}
        ]
        assert ds.changes(after=first).to_arrow()["op"].to_pylist() == ["insert"]
        assert ds.get({"city": "Bern"}) == {"day": date(2026, 1, 1), "city": "Bern"}
        assert isinstance(ds.view(), tl.View)


def test_the_newest_row_with_given_values_is_found_from_the_back(history):
    assert history.get({"city": "c3"})["x"] == 12003
    history.store.reset()
    assert history.get({"city": "c3", "x": 11003})["day"] == date(2026, 11, 4)
    # The newest slice once, the one before twice: for the key, then for the row.
    assert history.store.gets[Folder.DATA] == 3
    assert history.get({"city": "nowhere"}) is None
    with pytest.raises(InputError, match="has no key"):
        history.get("c3")
    with pytest.raises(SchemaError, match="no column 'nothing'"):
        history.get({"nothing": 1})
    with pytest.raises(InputError, match="not a value of the key column 'x'"):
        history.get({"x": "one"})
