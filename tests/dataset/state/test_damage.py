"""State files that are missing, damaged or made up: typed errors, and nothing wrong read."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dataset.state.rows import content, delta, keys_of
from trueline.chain.checkpoint import CheckpointFile, StateFile
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.store import Folder
from trueline.dataset.state import SegmentInfo, State
from trueline.dataset.state import segment as segments
from trueline.dataset.state import segment_reader as readings
from trueline.errors import CorruptionError, HashMismatch, ObjectMissing, StateMissing
from trueline.identity.multihash import Multihash

READS = {
    "lookup": lambda state: state.lookup(keys_of(range(20))),
    "scan": lambda state: list(state.scan()),
    "rewrite": lambda state: state.write_merged(0),
    "verify": lambda state: state.verify(),
}


@pytest.fixture(autouse=True, scope="module")
def small_groups():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "ROWS_OF_A_GROUP", 4)
        yield


def made_up(raw: bytes, rows: int = 3, first: bytes = b"a", last: bytes = b"c", **other) -> State:
    """A state of one file with these bytes, under the name of these bytes or of others."""
    store = MemoryStore()
    name = store.put(Folder.CHECKPOINTS, raw)
    store.sync()
    store._objects[Folder.CHECKPOINTS] = {other.get("name", name): (raw, 0.0)}
    info = SegmentInfo(other.get("name", name), other.get("size", len(raw)), rows, first, last)
    return State(store, generations=[(info,)])


def parquet(table: pa.Table, **options) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **({"row_group_size": 4, "use_dictionary": False} | options))
    return sink.getvalue()


def rows(keys=(b"a", b"b", b"c"), gone=False) -> pa.Table:
    return pa.table({"_key": pa.array(keys, pa.binary()), "_gone": [gone] * len(keys), "v": [1] * len(keys)})


def test_a_file_as_it_should_be_is_read():
    assert [batch.column("v").to_pylist() for batch in made_up(parquet(rows())).scan()] == [[1, 1, 1]]


@pytest.mark.parametrize("read", READS)
def test_a_missing_file_says_that_the_state_is_to_be_rebuilt(read):
    state = State.open(MemoryStore(), None).apply(delta({1: "a"})).apply(delta({2: "b"}))
    gone = state.generations[0][0].hash
    state.store.sync()
    state.store.delete(Folder.CHECKPOINTS, gone)
    with pytest.raises(StateMissing, match="rebuild the state") as raised:
        READS[read](state)
    assert raised.value.hash == gone
    assert isinstance(raised.value, ObjectMissing)


WRONG = {
    "not parquet": (b"not a parquet file at all", {}),
    "nothing": (b"", {}),
    "only the magic": (b"PAR1PAR1", {}),
    "no key": (parquet(rows().drop_columns(["_key"])), {}),
    "no mark": (parquet(rows().drop_columns(["_gone"])), {}),
    "text as key": (parquet(rows().set_column(0, "_key", pa.array(["a", "b", "c"]))), {}),
    "columns in another order": (parquet(rows().select(["v", "_key", "_gone"])), {}),
    "unsorted": (parquet(rows([b"a", b"c", b"b"])), {}),
    "unsorted, no statistics": (parquet(rows([b"a", b"c", b"b"]), write_statistics=False), {}),
    "a key twice": (parquet(rows([b"a", b"b", b"b"])), {"last": b"b"}),
    "a missing key": (parquet(rows([b"a", None, b"c"])), {}),
    "groups out of order": (parquet(rows([b"c", b"a", b"b"]), row_group_size=1), {}),
    "groups out of order, no statistics": (
        parquet(rows([b"b", b"a", b"c"]), row_group_size=1, write_statistics=False),
        {},
    ),
    "more rows than said": (parquet(rows()), {"rows": 2}),
    "fewer rows than said": (parquet(rows()), {"rows": 4}),
    "keys before its range": (parquet(rows()), {"first": b"b"}),
    "keys after its range": (parquet(rows()), {"last": b"b"}),
    "another size": (parquet(rows()), {"size": 10}),
    "another hash": (parquet(rows()), {"name": Multihash.of(b"other")}),
    "a group that is too large": (
        parquet(rows([b"%06d" % n for n in range(70_000)]), row_group_size=70_000),
        {"rows": 70_000, "first": b"", "last": b""},
    ),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_no_segment_is_damage(wrong, read):
    raw, said = WRONG[wrong]
    state = made_up(raw, **said)
    wanted = pa.array([b"a", b"b", b"c", b"bb"], pa.binary())
    with pytest.raises(CorruptionError):
        if read == "lookup":
            # Unsorted groups can only be told from one another when they are read in order.
            if wrong == "groups out of order, no statistics":
                list(state.scan())
            state.lookup(wanted)
        else:
            READS[read](state)


def big_state(patch) -> State:
    """A state whose file is too large to be hashed at every opening."""
    patch.setattr(readings, "HASHED_BYTES", 100)
    state = State.open(MemoryStore(), None).apply(delta({n: f"text {n}" for n in range(12)}))
    state.store.sync()
    return state


@given(data=st.data())
def test_a_flipped_bit_is_never_read_as_rows(data):
    with pytest.MonkeyPatch.context() as patch:
        state = big_state(patch)
        info = state.generations[0][0]
        raw = bytearray(state.store.get(Folder.CHECKPOINTS, info.hash))
        # The last bytes of the file: its footer; the others: pages, each with its checksum.
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= 1 << data.draw(st.integers(0, 7))
        state.store._objects[Folder.CHECKPOINTS][info.hash] = (bytes(raw), 0.0)
        fresh = State.open(state.store, CheckpointFile(state.files))
        try:
            found = content(fresh)
        except CorruptionError:
            pass
        else:
            assert found == {n: f"text {n}" for n in range(12)}
        with pytest.raises(HashMismatch):
            State.open(state.store, CheckpointFile(state.files)).verify()
        with pytest.raises(HashMismatch):
            State.open(state.store, CheckpointFile(state.files)).write_merged(0)
        with pytest.raises(HashMismatch):
            State.open(state.store, CheckpointFile(state.files)).merged_with(delta({3: "new"}))


@given(data=st.data())
def test_a_small_file_is_hashed_before_anything_in_it_is_believed(data):
    state = State.open(MemoryStore(), None).apply(delta({n: f"text {n}" for n in range(12)}))
    state.store.sync()
    info = state.generations[0][0]
    raw = bytearray(state.store.get(Folder.CHECKPOINTS, info.hash))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    state.store._objects[Folder.CHECKPOINTS][info.hash] = (bytes(raw), 0.0)
    with pytest.raises(HashMismatch):
        State.open(state.store, CheckpointFile(state.files)).lookup(keys_of([1]))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_damage(share):
    state = State.open(MemoryStore(), None).apply(delta({n: f"text {n}" for n in range(12)}))
    state.store.sync()
    info = state.generations[0][0]
    raw = state.store.get(Folder.CHECKPOINTS, info.hash)
    state.store._objects[Folder.CHECKPOINTS][info.hash] = (raw[: int(len(raw) * share)], 0.0)
    with pytest.raises(CorruptionError, match="bytes, not"):
        content(State.open(state.store, CheckpointFile(state.files)))


GOOD = {"state": "state", "generation": 0, "part": 0, "rows": 1, "first": "61", "last": "61"}


@pytest.mark.parametrize(
    "notes",
    [
        [{**GOOD, "rows": 0}],
        [{**GOOD, "rows": "1"}],
        [{**GOOD, "rows": True}],
        [{**GOOD, "first": 7}],
        [{**GOOD, "last": "zz"}],
        [{**GOOD, "generation": -1}],
        [{**GOOD, "generation": 1}],
        [{**GOOD, "generation": None}],
        [{**GOOD, "generation": 10**9}],
        [{**GOOD, "part": 1}],
        [{**GOOD, "part": "0"}],
        [GOOD, GOOD],
        [GOOD, {**GOOD, "part": 1}],
        [GOOD, {**GOOD, "part": 1, "first": "60", "last": "60"}],
        [GOOD, {**GOOD, "generation": 2}],
        [{"state": "state"}],
    ],
)
def test_a_checkpoint_that_describes_its_files_wrongly_is_damage(notes):
    files = tuple(StateFile(Multihash.of(b"%d" % n), 1, each) for n, each in enumerate(notes))
    with pytest.raises(CorruptionError, match="rebuild"):
        State.open(MemoryStore(), CheckpointFile(files))


def test_parts_whose_keys_overlap_under_cut_bounds_are_damage():
    long = [b"k" * 200 + b"%d" % n for n in range(4)]
    store = MemoryStore()
    one, two = (State.open(store, None).write_part(rows([long[a], long[b]])) for a, b in ((0, 2), (1, 3)))
    state = State(store, generations=[(*one, *two)])
    with pytest.raises(CorruptionError, match="out of order"):
        list(state.scan())


def test_an_interrupted_update_leaves_nothing_staged():
    store = MemoryStore()

    class Full(Exception):
        pass

    def refuse(*_):
        raise Full

    writer = store.writer
    with pytest.MonkeyPatch.context() as patch:

        def failing(folder):
            made = writer(folder)
            made.write = refuse
            return made

        patch.setattr(store, "writer", failing)
        with pytest.raises(Full):
            State.open(store, None).apply(delta(dict.fromkeys(range(20), "x")))
    store.sync()
    assert list(store.list(Folder.CHECKPOINTS)) == []
