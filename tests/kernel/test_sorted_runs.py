"""External sorting: the result is that of sorting everything at once."""

from __future__ import annotations

import io
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from trueline import merge
from trueline.dataset.merge import (
    Merged,
    RunFile,
    choose_splitters,
    merge_batch,
    read_range,
    sort_run,
)
from trueline.dataset.state import encode_keys, ranges
from trueline.errors import InputError, RetryError
from trueline.kernel import sorted_runs
from trueline.kernel.key_encoding import MergeKey

MAX = examples(25)
ROWS = st.lists(st.tuples(st.sampled_from(["", "a", "b", "c\0", "long key"]), st.integers(0, 3)), max_size=40)


class Memory:
    """Files in a dictionary."""

    def __init__(self):
        self.files = {}
        self.opened = []
        self.read = 0

    def create(self, name):
        files = self.files

        class Kept(io.BytesIO):
            def close(self):
                files[name] = self.getvalue()
                super().close()

        return Kept()

    def open(self, name):
        self.opened.append(name)
        place = self

        class Counted(io.BytesIO):
            def read(self, size=-1):
                found = super().read(size)
                place.read += len(found)
                return found

        return Counted(self.files[name])


@pytest.fixture(autouse=True, scope="module")
def small_groups():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "ROWS_OF_A_GROUP", 3)
        yield


def table_of(rows) -> pa.Table:
    return pa.table(
        {
            "_rank": pa.array(range(len(rows)), pa.int64()),
            "s": pa.array([s for s, _ in rows], pa.string()),
            "n": pa.array([n for _, n in rows], pa.int64()),
        }
    )


def sorted_through(place, table, cuts, parts, key=("s",)):
    """Sort by way of runs and ranges; returns the tables of each range."""
    bounds = [0, *sorted(cuts), table.num_rows]
    runs = [
        sort_run(table.slice(a, b - a), MergeKey(tuple(key)), place, f"run-{number}", samples=4)
        for number, (a, b) in enumerate(pairwise(bounds))
    ]
    splitters = choose_splitters(runs, parts)
    assert len(splitters) < parts
    return [list(read_range(place, runs, each)) for each in ranges(splitters)]


@settings(max_examples=MAX)
@given(rows=ROWS, data=st.data(), parts=st.integers(1, 6))
def test_neither_runs_nor_splitters_show_in_the_result(rows, data, parts):
    table = table_of(rows)
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4))
    found = sorted_through(Memory(), table, cuts, parts)
    flat = [row for tables in found for each in tables for row in each.to_pylist()]
    expected = sorted(range(len(rows)), key=lambda rank: (rows[rank][0].encode(), rank))
    assert [row["_rank"] for row in flat] == expected
    keys = encode_keys(table, ["s"]).to_pylist()
    assert [(row["s"], row["n"], row["_key"]) for row in flat] == [
        (*rows[rank], keys[rank]) for rank in expected
    ]
    # All rows of a key are in one range.
    owners = {}
    for number, tables in enumerate(found):
        for each in tables:
            for text in each["s"].to_pylist():
                assert owners.setdefault(text, number) == number


@pytest.mark.parametrize(
    ("equality", "columns"),
    [(each, key) for each in merge.KeyEquality for key in (("s",), ("n", "s"), ("n",))]
    # Of groups there is a key of no columns.
    + [(merge.KeyEquality.GROUP, ())],
)
def test_the_keys_of_a_run_are_those_that_are_looked_up(equality, columns):
    null = None if equality == merge.KeyEquality.GROUP else "x"
    table = table_of([("b", 2), (null, 1), ("a", 2), ("b", 2)])
    key, place = MergeKey(columns, equality), Memory()
    found = pa.concat_tables(read_range(place, [sort_run(table, key, place, "run")]))
    assert found["_key"].to_pylist() == key.encode(found).to_pylist() == sorted(key.encode(table).to_pylist())


@settings(max_examples=MAX)
@given(rows=ROWS, data=st.data(), parts=st.integers(1, 4))
def test_merging_range_by_range_is_merging_at_once(rows, data, parts):
    table = table_of(rows)
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3))
    for strategy in (merge.ledger("s"), merge.upsert("s")):
        whole = merge_batch(strategy, table)
        found = sorted_through(Memory(), table, cuts, parts)
        merged = [merge_batch(strategy, pa.concat_tables(tables)) for tables in found if tables]
        if merged:
            joined = Merged.concat(merged)
            assert joined.events.to_pylist() == whole.events.to_pylist()
            assert joined.delta.to_pylist() == whole.delta.to_pylist()
            assert joined.ignored == whole.ignored
        else:
            assert whole.events.num_rows == 0


def test_ranges_have_about_equal_numbers_of_rows():
    place = Memory()
    rows = [(f"{n * 7919 % 5000:05d}", n) for n in range(5000)]
    table = table_of(rows)
    runs = [
        sort_run(table.slice(n, 1000), MergeKey(("s",)), place, f"run-{n}", samples=50)
        for n in range(0, 5000, 1000)
    ]
    counts = [
        sum(each.num_rows for each in read_range(place, runs, cut))
        for cut in ranges(choose_splitters(runs, 4))
    ]
    assert sum(counts) == 5000
    assert max(counts) - min(counts) < 250


def test_a_frequent_key_takes_a_range_of_its_own():
    place = Memory()
    rows = [("x", n) for n in range(90)] + [("y", n) for n in range(10)]
    runs = [sort_run(table_of(rows), MergeKey(("s",)), place, "run")]
    splitters = choose_splitters(runs, 10)
    assert splitters == [encode_keys(pa.table({"s": ["y"]}), ["s"])[0].as_py()]
    assert choose_splitters(runs, 1) == choose_splitters([], 5) == []


def test_only_groups_of_the_range_are_read(monkeypatch):
    monkeypatch.setattr(sorted_runs, "ROWS_OF_A_GROUP", 500)
    place = Memory()
    table = table_of([(f"{n * n:012d}" * 4, n) for n in range(10_000)])
    run = sort_run(table, MergeKey(("s",)), place, "run")
    cut = ranges(encode_keys(table.slice(9_700, 1), ["s"]).to_pylist())[1]
    assert [n for each in read_range(place, [run], cut) for n in each["n"].to_pylist()] == list(
        range(9_700, 10_000)
    )
    narrow = place.read
    assert sum(each.num_rows for each in read_range(place, [run])) == 10_000
    assert narrow < (place.read - narrow) / 4


def test_equal_rows_make_equal_runs():
    left, right = Memory(), Memory()
    table = table_of([("b", 1), ("a", 2), ("c", 3)])
    sort_run(table, MergeKey(("s",)), left, "run")
    sort_run(table.take(pa.array([2, 0, 1])), MergeKey(("s",)), right, "run")
    assert left.files == right.files


def test_an_empty_run_is_not_opened():
    place = Memory()
    run = sort_run(table_of([]), MergeKey(("s",)), place, "run")
    assert run == RunFile("run", 0, ())
    assert list(read_range(place, [run])) == []
    assert place.opened == []


def test_rows_without_rank_or_key_are_refused():
    with pytest.raises(InputError, match="cannot be sorted"):
        sort_run(pa.table({"s": ["a"]}), MergeKey(("s",)), Memory(), "run")
    with pytest.raises(InputError) as raised:
        sort_run(table_of([("a", 1), (None, 2)]), MergeKey(("s",)), Memory(), "run")
    assert raised.value.code == "NullKey"
    with pytest.raises(InputError):
        choose_splitters([], 0)


def test_a_damaged_run_says_to_sort_again():
    place = Memory()
    run = sort_run(table_of([("abcdefgh" * 4, n) for n in range(30)]), MergeKey(("n",)), place, "run")
    whole = place.files["run"]
    at = whole.index(b"abcdefgh")
    for damaged in (whole[: len(whole) // 2], whole[:at] + b"X" + whole[at + 1 :]):
        place.files["run"] = damaged
        with pytest.raises(RetryError, match="sort the rows again"):
            list(read_range(place, [run]))
