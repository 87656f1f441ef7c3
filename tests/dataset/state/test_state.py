"""State against a dictionary, and what reading and writing it costs."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dataset.state.rows import COLUMNS, applied, content, delta, key_of, keys_of, reopened
from tests.examples import examples
from trueline.chain.checkpoint import CheckpointFile, StateFile
from trueline.chain.store.file import FileStore
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.store import Folder
from trueline.dataset.state import KeyRange, State, encode_keys, ranges
from trueline.dataset.state import segment as segments
from trueline.dataset.state.state import SEGMENTS_AT_MOST, rewritten_from
from trueline.errors import CorruptionError, InputError, SchemaError, UnsupportedVersion
from trueline.identity.multihash import Multihash
from trueline.kernel.key_encoding import KeyEncoding

# Every example writes files; `make soak` looks at more of them.
MAX = examples(25)
CHANGES = st.lists(
    st.dictionaries(st.integers(-9, 9), st.none() | st.sampled_from(["", "a", "bb"]), max_size=9), max_size=6
)


@pytest.fixture(autouse=True, scope="module")
def small_groups():
    """Groups of four rows and files of eight, so that a few rows are many groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "ROWS_OF_A_GROUP", 4)
        yield


def built(changes) -> tuple[State, dict[int, str]]:
    state, rows = State.open(MemoryStore(), None), {}
    for change in changes:
        state, rows = state.apply(delta(change)), applied(rows, change)
    return state, rows


@settings(max_examples=MAX)
@given(changes=CHANGES, wanted=st.sets(st.integers(-12, 12)))
def test_a_state_holds_what_a_dictionary_would(changes, wanted):
    state, rows = built(changes)
    assert content(state) == rows
    assert content(reopened(state)) == rows
    found = state.lookup(keys_of(wanted)).to_pylist()
    assert [(row["n"], row["v"]) for row in found] == [(n, rows[n]) for n in sorted(wanted) if n in rows]
    assert all(row["_key"] == key_of(row["n"]) for row in found)


@settings(max_examples=MAX)
@given(changes=CHANGES, data=st.data())
def test_rewriting_changes_files_and_no_row(changes, data):
    state, rows = built(changes)
    start = data.draw(st.integers(0, max(0, len(state.generations) - 1)))
    rewritten = reopened(state.replaced(start, state.write_merged(start)))
    assert content(rewritten) == rows
    assert len(rewritten.generations) <= start + 1
    assert content(state.compact_if_needed()) == rows
    if start == 0:
        # The base keeps no removed keys.
        assert sum(info.rows for info in sum(rewritten.generations, ())) == len(rows)


@settings(max_examples=MAX)
@given(changes=CHANGES, splitters=st.sets(st.integers(-9, 9), max_size=4))
def test_ranges_together_are_the_whole(changes, splitters):
    state, rows = built(changes)
    cuts = [key_of(number) for number in sorted(splitters)]
    parts = [content(state, key_range=each) for each in ranges(cuts)]
    assert {n: v for part in parts for n, v in part.items()} == rows
    assert sum(map(len, parts)) == len(rows)


@settings(max_examples=MAX)
@given(changes=CHANGES, splitters=st.sets(st.integers(-9, 9), max_size=4), data=st.data())
def test_how_an_update_is_cut_does_not_show(changes, splitters, data):
    whole, rows = built(changes)
    cuts = ranges([key_of(number) for number in sorted(splitters)])
    state = State.open(MemoryStore(), None)
    for change in changes:
        shares = [delta({n: v for n, v in change.items() if key_of(n) in cut}) for cut in cuts]
        # Some parts come as rows, some as segments that a task has written.
        parts = [state.write_part(each) if data.draw(st.booleans()) else each for each in shares]
        state = reopened(state.apply_parts(parts))
    assert content(state) == rows == content(whole)
    assert len(state.generations) == len(whole.generations)
    merged = [state.write_merged(0, cut) for cut in cuts] if rows else []
    assert content(state.replaced(0, sum(merged, ()))) == rows


def test_equal_updates_are_equal_files_however_they_come():
    rows = {n: f"text {n}" for n in range(-50, 50)}
    table = delta(rows)
    shuffled = table.take(pa.array(np.random.default_rng(7).permutation(100)))
    chunked = pa.concat_tables([table.slice(0, 33), table.slice(33, 1), table.slice(34)])
    found = {State.open(MemoryStore(), None).apply(each).generations for each in (table, shuffled, chunked)}
    assert len(found) == 1


def test_a_nan_has_one_pattern_in_a_file():
    odd = np.array([0xFFF8_0000_0000_0001], dtype=np.uint64).view(np.float64)

    def generation(values):
        table = delta({1: "x"}, {"n": pa.int64(), "v": pa.string()}).append_column("f", pa.array(values))
        return State.open(MemoryStore(), None).apply(table).generations

    assert generation(odd) == generation(np.array([np.nan]))


def test_a_large_update_is_several_files_in_key_order(monkeypatch):
    state = State.open(MemoryStore(), None)
    monkeypatch.setattr(segments.SegmentWriter.__init__, "__kwdefaults__", {"rows_of_a_file": 8})
    monkeypatch.setattr(segments.write_segment, "__kwdefaults__", {"rows_of_a_file": 8})
    rows = {n: str(n) for n in range(30)}
    state = reopened(state.apply(delta(rows)))
    assert [info.rows for info in state.generations[0]] == [8, 8, 8, 6]
    assert content(state) == rows
    assert content(state, key_range=KeyRange(key_of(9), key_of(11))) == {9: "9", 10: "10"}


# --- what it costs ------------------------------------------------------------


def test_only_groups_that_can_hold_a_key_are_read():
    state, _ = built([{n: str(n) for n in range(0, 400, 2)}])
    state.lookup(keys_of([10, 30]), ["v"])
    # Two of 50 groups of 4 rows, each read twice: its keys, then its columns.
    assert (state.reads.groups, state.reads.rows) == (4, 16)
    before = state.reads.groups
    state.lookup(keys_of([401, -1]))
    assert state.reads.groups == before
    # A key between others costs the look at its group's keys.
    state.lookup(keys_of([11]))
    assert state.reads.groups == before + 1


def test_a_range_reads_its_groups_only():
    state, _ = built([{n: str(n) for n in range(400)}])
    assert content(state, key_range=KeyRange(key_of(40), key_of(48))) == {n: str(n) for n in range(40, 48)}
    assert state.reads.groups == 2


def test_columns_that_are_not_asked_for_are_not_read():
    wide = dict(COLUMNS) | {f"c{i}": pa.int64() for i in range(48)}
    state = State.open(MemoryStore(), None).apply(delta({n: str(n) for n in range(400)}, wide))
    state.lookup(keys_of(range(400)), ["v"])
    narrow = state.reads.bytes
    state.lookup(keys_of(range(400)))
    assert narrow < (state.reads.bytes - narrow) / 8
    assert next(state.scan(["v"])).schema.names == ["_key", "v"]


def test_keys_found_in_newer_rows_are_not_looked_for_in_older_ones():
    state, _ = built([dict.fromkeys(range(100), "old"), {5: "new"}])
    assert state.lookup(keys_of([5])).column("v").to_pylist() == ["new"]
    assert state.reads.groups == 2


def stored_bytes(folder) -> int:
    return sum(path.stat().st_size for path in (folder / Folder.CHECKPOINTS).iterdir())


def test_an_update_of_one_key_in_a_hundred_writes_at_most_a_twentieth(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "ROWS_OF_A_GROUP", 65_536)
    rng = np.random.default_rng(11)
    store = FileStore(tmp_path, durable=False)

    def update(numbers):
        kinds = {"n": pa.int64(), "v": pa.string(), **{f"c{i}": pa.int64() for i in range(6)}}
        return delta({int(n): f"text {rng.integers(1e9)}" for n in numbers}, kinds)

    state = State.open(store, None).apply(update(range(100_000)))
    store.sync()
    base = stored_bytes(tmp_path)
    rewrites = 0
    for _ in range(40):
        before = stored_bytes(tmp_path)
        state = state.apply(update(rng.choice(100_000, 1_000, replace=False)))
        store.sync()
        assert stored_bytes(tmp_path) - before <= base / 20
        compacted = state.compact_if_needed()
        store.sync()
        rewrites += compacted is not state
        state = compacted
    assert rewrites == 1
    assert sum(batch.num_rows for batch in state.scan(["n"])) == 100_000


# --- when it is rewritten -------------------------------------------------------


@given(updates=st.lists(st.integers(1, 300), min_size=1, max_size=400))
def test_files_stay_few_and_small_against_the_base(updates):
    sizes = [1000]
    for update in updates:
        sizes.append(update)
        start = rewritten_from(sizes)
        if start is not None:
            assert 0 <= start < len(sizes) - 1
            sizes[start:] = [sum(sizes[start:])]
        assert len(sizes) <= SEGMENTS_AT_MOST
        assert sum(sizes[1:]) <= sizes[0] / 4


def test_small_neighbours_are_merged_before_the_base():
    sizes = [10_000, 900, *[30] * 31]
    assert rewritten_from(sizes) == 2
    assert rewritten_from(sizes[:-1]) is None
    assert rewritten_from([10_000, *[30] * 31, 900]) == 0
    assert rewritten_from([]) is rewritten_from([5]) is None


def test_many_updates_leave_few_files_and_every_row():
    state, rows = built([dict.fromkeys(range(2000), "base")])
    for number in range(70):
        change = {number * 3: f"v{number}", number * 3 + 1: None}
        state, rows = state.apply(delta(change)).compact_if_needed(), applied(rows, change)
        assert len(state.generations) <= SEGMENTS_AT_MOST
    assert content(reopened(state)) == rows


# --- columns, checks ------------------------------------------------------------


def test_a_column_that_came_later_is_missing_in_older_rows():
    state, _ = built([{1: "a", 2: "b"}])
    later = dict(COLUMNS) | {"w": pa.float64()}
    state = reopened(state.apply(delta({2: "B", 3: "c"}, later)))
    assert state.schema.names == ["n", "v", "w"]
    expected = [(1, None), (2, 2.0), (3, 3.0)]
    assert [(row["n"], row["w"]) for row in state.lookup(keys_of([1, 2, 3])).to_pylist()] == expected
    assert [(row["n"], row["w"]) for batch in state.scan(["w", "n"]) for row in batch.to_pylist()] == expected
    assert next(state.scan(["w", "n"])).schema.names == ["_key", "w", "n"]
    rewritten = state.replaced(0, state.write_merged(0))
    assert [row["w"] for batch in rewritten.scan() for row in batch.to_pylist()] == [None, 2.0, 3.0]


def test_a_column_that_is_lost_or_changed_is_refused():
    state, _ = built([{1: "a"}])
    for columns in ({"v": pa.string()}, {"n": pa.int32(), "v": pa.string()}):
        with pytest.raises(SchemaError) as raised:
            state.apply(delta({2: "b"}, columns))
        assert raised.value.column == "n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["_key"]), "needs the column '_key'"),
        (lambda t: t.set_column(1, "_gone", pa.array([0, 0])), "needs the column '_gone'"),
        (lambda t: t.set_column(0, "_key", pa.array([b"x", None])), "without '_key'"),
        (lambda t: t.set_column(0, "_key", pa.array([b"x", b"x"])), "occur twice"),
        (lambda t: t.append_column("v", t["v"]), "occurs twice"),
    ],
)
def test_an_update_that_is_no_update_is_refused(change, message):
    store = MemoryStore()
    with pytest.raises(InputError, match=message):
        State.open(store, None).apply(change(delta({1: "a", 2: "b"})))
    store.sync()
    assert list(store.list(Folder.CHECKPOINTS)) == []


def test_parts_that_overlap_are_refused():
    state = State.open(MemoryStore(), None)
    for parts in ([{1: "a", 3: "c"}, {2: "b"}], [{2: "b"}, {1: "a"}], [{1: "a"}, {1: "b"}]):
        with pytest.raises(InputError, match="overlap"):
            state.apply_parts([delta(part) for part in parts])


def test_a_missing_key_and_an_unknown_column_are_refused():
    state, _ = built([{1: "a"}])
    with pytest.raises(InputError) as raised:
        state.lookup(pa.array([None], pa.binary()))
    assert raised.value.code == "NullKey"
    with pytest.raises(SchemaError, match="no column 'x'"):
        state.lookup(keys_of([1]), ["x"])
    with pytest.raises(SchemaError, match="no column 'x'"):
        next(state.scan(["x"]))


def test_nothing_to_do_writes_nothing():
    store = MemoryStore()
    state = State.open(store, None)
    assert state.apply(delta({})) is state
    assert state.apply(delta({1: None})) is state
    assert state.compact_if_needed() is state
    assert (state.files, state.size, content(state)) == ((), 0, {})
    assert state.lookup(keys_of([1])).num_rows == 0
    store.sync()
    assert list(store.list(Folder.CHECKPOINTS)) == []


def test_a_state_of_which_every_key_is_removed_is_empty():
    state, _ = built([{1: "a", 2: "b"}, {1: None, 2: None}])
    assert content(state) == {}
    assert state.replaced(0, state.write_merged(0)).files == ()


def test_several_states_share_a_checkpoint():
    store = MemoryStore()
    left = State.open(store, None, "left").apply(delta({1: "a"}))
    right = State.open(store, None, "right").apply(delta({2: "b"})).apply(delta({3: "c"}))
    other = StateFile(Multihash.of(b"x"), 1, {"model": "y"})
    checkpoint = CheckpointFile((*right.files, other, *left.files))
    assert content(State.open(store, checkpoint, "left")) == {1: "a"}
    assert content(State.open(store, checkpoint, "right")) == {2: "b", 3: "c"}
    assert content(State.open(store, checkpoint)) == {}


@pytest.mark.parametrize("start", [b"\xff", b"m", b"m\xff"])
@pytest.mark.parametrize("length", [100, 500, 5000])
def test_long_keys_are_found_though_bounds_are_short(length, start, monkeypatch):
    monkeypatch.setattr(segments.write_segment, "__kwdefaults__", {"rows_of_a_file": 4})
    keys = [start * 130 + b"%04d" % n + b"x" * length for n in range(10)] + [
        b"a" * 126 + b"%d" % n for n in range(9)
    ]
    table = pa.table({"_key": pa.array(keys, pa.binary()), "_gone": [False] * 19, "v": list(range(19))})
    state = reopened(State.open(MemoryStore(), None).apply(table))
    assert len(state.generations[0]) == 5
    assert max(len(file.notes["first"]) for file in state.files) <= 256
    assert state.lookup(pa.array([keys[3], keys[12], b"absent"], pa.binary()))["v"].to_pylist() == [12, 3]
    assert [v for batch in state.scan() for v in batch.column("v").to_pylist()] == [
        *range(10, 19),
        *range(10),
    ]
    assert state.lookup(pa.array(keys, pa.binary())).num_rows == 19


def test_a_scan_holds_one_group_of_each_generation():
    state, rows = built([dict.fromkeys(range(100), "old"), dict.fromkeys(range(0, 100, 3), "new")])
    batches = state.scan()
    assert next(batches).num_rows <= 8
    assert state.reads.groups == 2
    assert sum(batch.num_rows for batch in batches) > 90
    assert state.reads.groups == 25 + 9
    assert len(rows) == 100


def test_a_base_is_rewritten_range_by_range_to_the_same_rows():
    state, rows = built([dict.fromkeys(range(100), "old"), {5: "new", 6: None, 200: "far"}])
    cuts = ranges(state.splitters(4))
    assert len(cuts) == 4
    parts = [state.write_merged(0, cut) for cut in cuts]
    assert [sum(info.rows for info in part) for part in parts] == [23, 24, 24, 29]
    assert content(reopened(state.replaced(0, sum(parts, ())))) == rows
    assert State.open(MemoryStore(), None).splitters(3) == []


# --- encodings ------------------------------------------------------------------


def grouped(rows: list[tuple[float | None, str]]) -> pa.Table:
    """An update whose keys have encoding 2."""
    table = pa.table({"x": pa.array([x for x, _ in rows], pa.float64()), "v": [v for _, v in rows]})
    keys = encode_keys(table, ["x"], encoding=KeyEncoding.GROUP)
    return table.add_column(0, "_gone", pa.array([False] * len(rows))).add_column(0, "_key", keys)


def test_a_state_of_group_keys_says_so_in_its_checkpoint_and_keeps_null_as_a_key(tmp_path):
    store = FileStore(tmp_path, durable=False)
    state = State.open(store, None, "groups", encoding=KeyEncoding.GROUP)
    state = state.apply(grouped([(1.0, "one"), (None, "none"), (-0.0, "zero")])).apply(
        grouped([(0.0, "nought")])
    )
    raw = CheckpointFile(state.files).to_bytes()
    assert json.loads(raw)["version"] == 2
    assert {file["encoding"] for file in json.loads(raw)["files"]} == {2}
    again = State.open(store, CheckpointFile.from_bytes(raw), "groups", encoding=KeyEncoding.GROUP)
    rewritten = again.replaced(0, again.write_merged(0))
    assert {file.notes["encoding"] for file in rewritten.files} == {2}
    store.sync()
    for each in (state, again, rewritten, pickle.loads(pickle.dumps(again))):
        assert each.encoding is KeyEncoding.GROUP
        found = [row["v"] for batch in each.scan(["v"]) for row in batch.to_pylist()]
        assert found == ["nought", "one", "none"]
    wanted = encode_keys(pa.table({"x": pa.nulls(1, pa.float64())}), ["x"], encoding=KeyEncoding.GROUP)
    assert again.lookup(wanted, ["v"])["v"].to_pylist() == ["none"]


def test_a_state_of_merge_keys_has_the_bytes_it_always_had():
    state, _ = built([{1: "a"}, {2: "b"}])
    raw = CheckpointFile(state.files).to_bytes()
    assert json.loads(raw)["version"] == 1
    assert all("encoding" not in file for file in json.loads(raw)["files"])


def test_keys_are_not_looked_up_in_a_state_of_another_encoding():
    state, _ = built([{1: "a"}])
    with pytest.raises(CorruptionError, match="encoding 1, not 2"):
        State.open(state.store, CheckpointFile(state.files), encoding=KeyEncoding.GROUP)
    mixed = [replace(file, notes={**file.notes, "encoding": 2, "part": 1}) for file in state.files]
    with pytest.raises(CorruptionError):
        State.open(state.store, CheckpointFile((*state.files, *mixed)))


@pytest.mark.parametrize("encoding", [0, 3, "2", True, None, 2.0])
def test_an_encoding_that_is_not_known_is_refused(encoding):
    state, _ = built([{1: "a"}])
    files = [replace(file, notes={**file.notes, "encoding": encoding}) for file in state.files]
    with pytest.raises(UnsupportedVersion, match="encoding") as caught:
        State.open(state.store, CheckpointFile(tuple(files)))
    assert caught.value.remedy


def test_notes_of_a_later_version_stay_with_the_files_they_are_about():
    state, _ = built([{1: "a"}])
    files = tuple(replace(file, notes={**file.notes, "bloom": "x"}) for file in state.files)
    after = State.open(state.store, CheckpointFile(files)).apply(delta({2: "b"}))
    assert [file.notes.get("bloom") for file in after.files] == ["x", None]
    rewritten = after.replaced(0, after.write_merged(0))
    assert ["bloom" in file.notes for file in rewritten.files] == [False]
