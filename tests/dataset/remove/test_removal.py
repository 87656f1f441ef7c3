"""Removal: the bytes go, the record stays, everything else goes on working."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.workspace.transfer.test_clone import contents
from trueline.chain.chain import Chain
from trueline.chain.events import AddData
from trueline.chain.head_state import next_add_data, next_block
from trueline.chain.store.store import Folder
from trueline.dataset.remove import drop as dropping
from trueline.dataset.remove.drop import on_removal
from trueline.dataset.remove.record import removals_of
from trueline.errors import CorruptionError, InputError, ObjectMissing, StoreError
from trueline.workspace.transfer.clone import update


@pytest.fixture
def ds(ws):
    made = ws.create("trades")
    for n in range(4):
        made.append(pa.table({"x": [10 * n, 10 * n + 1, 10 * n + 2], "who": ["ann", "bob", "cid"]}))
    return made


@pytest.fixture
def keyed(ws):
    made = ws.create("keyed", merge=tl.merge.upsert("k"))
    made.append(pa.table({"k": [1, 2, 3], "v": ["one", "two", "three"]}))
    made.append(pa.table({"k": [2, 4], "v": ["zwei", "vier"]}))
    return made


def xs(ds, **options):
    return ds.view(**options).to_arrow()["x"].to_pylist()


def kinds(report):
    return {str(found.kind) for found in report.problems}


def texts(ds) -> bytes:
    """All bytes of a dataset that anyone could find, Parquet pages unpacked."""
    import pyarrow.parquet as pq

    found = b""
    for path in Path(ds.chain.store.location).rglob("*"):
        if path.is_file() and path.parent.name in ("data", "checkpoints", "staging", "scratch"):
            raw = path.read_bytes()
            found += raw
            if raw[:4] == b"PAR1":
                found += repr(pq.read_table(path).to_pydict()).encode()
    return found


# --- which records ------------------------------------------------------------------


def test_records_that_meet_a_condition_go_and_the_others_stay(ds):
    before = ds.head
    done = ds.drop_data(where="who = :name", name="ann", reason="request 17")
    assert (done.rows, done.slices, done.block) == (4, 4, ds.head)
    view = ds.view()
    assert xs(ds) == [1, 2, 11, 12, 21, 22, 31, 32]
    assert (view.count(), view.row_count, view.removed) == (8, 8, 4)
    assert xs(ds, at=before) == xs(ds), "gone is gone, at every commit"
    assert ds.changes().to_arrow()["offset"].to_pylist() == [1, 2, 4, 5, 7, 8, 10, 11]
    assert b"ann" not in texts(ds)


def test_records_up_to_an_offset_go_within_a_slice_too(ds):
    done = ds.drop_data(upto=4, reason="old")
    assert (done.rows, done.slices) == (5, 2)
    assert xs(ds) == [12, 20, 21, 22, 30, 31, 32]
    assert ds.view().removed == 5
    assert ds.append(pa.table({"x": [99], "who": ["eve"]})).offsets == range(12, 13)
    assert xs(ds)[-1] == 99


def test_upto_takes_what_at_takes(ds):
    commits = list(ds.log())[::-1]
    assert ds.drop_data(upto=commits[1], reason="a commit").rows == 3
    assert ds.drop_data(upto=commits[2].block, reason="a hash").rows == 3
    assert ds.drop_data(upto=datetime.now(UTC), reason="a moment").rows == 6
    assert xs(ds) == []
    assert ds.view().row_count == 0


def test_a_function_may_choose(ds):
    done = ds.drop_data(where=lambda batch: pc.greater(batch.column("x"), 30), reason="too large")
    assert done.rows == 2
    assert xs(ds)[-1] == 30


def test_what_is_not_there_records_nothing(ds):
    head = ds.head
    done = ds.drop_data(where="x = 12345", reason="none")
    assert (done.block, done.rows) == (None, 0)
    assert ds.head == head
    ds.drop_data(upto=5, reason="old")
    head = ds.head
    assert ds.drop_data(upto="2001-01-01", reason="before the beginning").block is None
    assert ds.drop_data(upto=5, reason="again").block is None
    assert ds.drop_data(upto=3, reason="less").block is None
    assert ds.head == head


def test_a_dataset_without_records_has_none_to_remove(ws):
    ds = ws.create("empty", schema=pa.schema({"x": pa.int64()}))
    assert ds.drop_data(upto=ds.head, reason="old").block is None
    assert ds.drop_data(where="x = 1", reason="gone").block is None
    with pytest.raises(InputError, match="no records"):
        ds.drop_data(upto=0, reason="old")


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"upto": 1, "where": "x = 1"},
        {"upto": 99},
        {"upto": -1},
        {"where": "nobody = 1"},
        {"where": "x"},
        {"upto": 1, "reason": " "},
        {"upto": 1, "reason": "x" * 1001},
    ],
)
def test_what_cannot_be_asked_changes_nothing(ds, asked):
    head = ds.head
    with pytest.raises(InputError):
        ds.drop_data(**{"reason": "why", **asked})
    assert ds.head == head
    assert ds.verify().ok


# --- the record ---------------------------------------------------------------------


@pytest.mark.contract("chain:D9")
def test_the_chain_keeps_hashes_counts_and_the_reason(ws, ds):
    hashes = [block.data_event.new_data for _, block in ds.blocks() if block.data_event]
    ds.drop_data(where="who = 'ann'", reason="request 17")
    assert [b.data_event.new_data for _, b in ds.blocks() if b.data_event][1:] == hashes
    block = ds.chain.block(ds.head)
    assert isinstance(block.event, AddData)
    assert block.event.new_data is None
    commit = next(ds.log())
    assert commit.summary == "removed 4 rows: request 17"
    (removal,) = removals_of(ds.chain).all
    assert (removal.reason, removal.rows, len(removal.losses)) == ("request 17", 4, 4)


def test_what_was_asked_for_is_not_written_down(ds):
    ds.drop_data(where="who = 'ann'", reason="request 17")
    blocks = b"".join(block.to_bytes() for _, block in ds.blocks())
    assert b"ann" not in blocks + texts(ds)


def test_verify_says_removed_and_nothing_else(ds):
    ds.drop_data(where="who = 'ann'", reason="request 17")
    ds.drop_data(upto=2, reason="old")
    report = ds.verify()
    assert kinds(report) == {"removed"}
    assert len(report.problems) == 4
    assert "lost 3 of 3 rows to removal 2: old" in report.problems[0].message
    assert "lost 1 of 3 rows to removal 1: request 17" in report.problems[1].message
    assert report.problems[1].expected == "3"
    assert report.problems[1].actual == "2"


def test_verify_looks_at_what_is_left(ds):
    ds.drop_data(where="who = 'ann'", reason="request 17")
    kept = removals_of(ds.chain).all[0].losses[2].replacement
    path = Path(ds.chain.store.location) / "checkpoints" / kept.hash
    path.unlink()
    report = ds.verify()
    assert kinds(report) == {"removed", "missing"}
    with pytest.raises(CorruptionError):
        xs(ds)


def test_a_lost_file_is_still_missing_beside_removed_ones(ds):
    ds.drop_data(upto=2, reason="old")
    data = ds.chain.block(list(ds.log())[1].block).data_event.new_data
    (Path(ds.chain.store.location) / "data" / data.physical_hash).unlink()
    assert kinds(ds.verify()) == {"removed", "missing"}


def test_removals_follow_each_other(ds):
    ds.drop_data(where="x = 11", reason="one")
    first = removals_of(ds.chain).all[0].losses[0].replacement
    ds.drop_data(where="x = 12", reason="two")
    assert xs(ds) == [0, 1, 2, 10, 20, 21, 22, 30, 31, 32]
    store = ds.chain.store
    assert store.size(Folder.CHECKPOINTS, first.hash) is None, "what took its place is enough"
    ds.drop_data(where="x = 10", reason="three")
    assert ds.view().removed == 3
    ds.drop_data(upto=4, reason="four")
    assert xs(ds) == [20, 21, 22, 30, 31, 32]
    assert ds.view().removed == 6
    assert [r.rows for r in removals_of(ds.chain).all] == [1, 1, 1, 3]
    assert kinds(ds.verify()) == {"removed"}


def test_the_keys_of_removals_cannot_be_taken(ds):
    with pytest.raises(InputError) as refused:
        ds.append(pa.table({"x": [8], "who": ["eve"]}), idempotency_key="trueline/removal/1")
    assert refused.value.code == "BadKey"
    ds.append(pa.table({"x": [7], "who": ["eve"]}))
    ds.drop_data(where="x = 7", reason="one")
    ds.drop_data(where="x = 11", reason="two")
    assert 7 not in xs(ds)
    assert 11 not in xs(ds)
    assert kinds(ds.verify()) == {"removed"}


# --- keyed datasets -----------------------------------------------------------------


def test_a_row_of_a_keyed_dataset_goes_with_what_it_was_before(keyed):
    keyed.drop_data(where="v = 'zwei'", reason="request 18")
    assert keyed.view().to_arrow().to_pydict() == {"k": [1, 3, 4], "v": ["one", "three", "vier"]}
    assert keyed.get(2) is None
    found = texts(keyed)
    assert b"zwei" not in found
    assert b"'two'" not in found
    assert b"'three'" in found


def test_an_old_value_goes_and_the_current_one_stays(keyed):
    keyed.drop_data(where="v = 'two'", reason="request 18")
    assert keyed.get(2)["v"] == "zwei"
    assert b"'two'" not in texts(keyed)
    assert kinds(keyed.verify()) == {"removed"}


def test_state_and_events_agree_after_a_removal(keyed):
    from trueline.dataset.dataset_at import Standing
    from trueline.dataset.read.current import CurrentRows

    keyed.append(pa.table({"k": [5, 1], "v": ["fuenf", "eins"]}))
    keyed.drop_data(where="k in (1, 4)", reason="request 19")
    keyed.drop_data(upto=1, reason="old")
    standing = Standing.of("keyed", keyed.chain, keyed.chain.position)
    assert standing.state is not None
    rows = CurrentRows(standing, standing.data_columns)
    events = pa.Table.from_batches(list(rows.from_events(("k", "v"))), schema=rows.schema)
    assert events.to_pydict() == keyed.view().to_arrow().to_pydict()


def test_appending_goes_on_after_a_removal(keyed):
    keyed.drop_data(where="k = 2", reason="request 18")
    commit = keyed.append(pa.table({"k": [2, 3], "v": ["anew", "drei"]}))
    assert commit.rows == 3
    assert keyed.changes(after=list(keyed.log())[1]).to_arrow()["op"].to_pylist() == [
        "insert",
        "update_preimage",
        "update_postimage",
    ]
    assert keyed.get(2)["v"] == "anew"
    assert kinds(keyed.verify()) == {"removed"}


def test_a_ledger_forgets_the_keys_of_removed_records(ws):
    ds = ws.create("ledger", merge=tl.merge.ledger("k"))
    ds.append(pa.table({"k": [1, 2], "x": [10, 20]}))
    ds.drop_data(where="k = 1", reason="request 20")
    assert xs(ds) == [20]
    assert ds.append(pa.table({"k": [1, 2], "x": [11, 21]})).rows == 1
    assert xs(ds) == [20, 11]


# --- crashes, gc, other copies ------------------------------------------------------


def test_a_crash_after_the_record_leaves_bytes_that_nobody_reads_and_gc_clears(ws, ds, monkeypatch):
    def dies(*_args, **_kwargs):
        raise StoreError("killed", remedy="")

    with monkeypatch.context() as broken:
        broken.setattr(dropping, "clear", dies)
        with pytest.raises(StoreError):
            ds.drop_data(where="who = 'ann'", reason="request 17")
    assert b"ann" in texts(ds)
    assert xs(ds) == [1, 2, 11, 12, 21, 22, 31, 32]
    assert kinds(ds.verify()) == {"removed"}
    assert ws.gc(older_than=0).objects >= 4
    assert b"ann" not in texts(ds)
    assert xs(ds) == [1, 2, 11, 12, 21, 22, 31, 32]
    assert kinds(ds.verify()) == {"removed"}


def test_a_crash_before_the_record_removes_nothing(ds, monkeypatch):
    head = ds.head

    def dies(*_args, **_kwargs):
        raise StoreError("killed", remedy="")

    with monkeypatch.context() as broken:
        broken.setattr(Chain, "append", dies)
        with pytest.raises(StoreError):
            ds.drop_data(where="who = 'ann'", reason="request 17")
    assert ds.head == head
    assert len(xs(ds)) == 12
    assert ds.verify().ok


def test_gc_keeps_what_is_left_of_slices(ws, ds, keyed):
    ds.drop_data(where="who = 'ann'", reason="request 17")
    keyed.drop_data(where="k = 2", reason="request 18")
    ds.append(pa.table({"x": [99], "who": ["eve"]}))
    before = (xs(ds), keyed.view().to_arrow())
    ws.gc(older_than=0)
    assert (xs(ds), keyed.view().to_arrow()) == before
    assert kinds(ws.verify()) == {"removed"}


def test_damaged_slices_are_not_given_a_good_name(ds):
    name = ds.chain.block(ds.head).data_event.new_data.physical_hash
    path = Path(ds.chain.store.location) / "data" / name
    raw = bytearray(path.read_bytes())
    place = raw.find(b"ann")
    raw[place : place + 3] = b"any"
    path.write_bytes(raw)
    with pytest.raises(CorruptionError):
        ds.drop_data(where="x = 31", reason="one")
    assert kinds(ds.verify()) == {"corrupt"}


def test_a_race_with_a_writer_that_takes_no_turns_is_run_again(ds, monkeypatch):
    original = Chain.append
    raced = []

    def late(self, *blocks, **options):
        if not raced:
            raced.append(1)
            tail = self.tail()
            watermark = next_add_data(tail, new_watermark=tail.system_time)
            original(self, next_block(tail, watermark))
        return original(self, *blocks, **options)

    monkeypatch.setattr(Chain, "append", late)
    assert ds.drop_data(where="who = 'ann'", reason="request 17").rows == 4
    assert kinds(ds.verify()) == {"removed"}


def test_clones_and_pushed_copies_have_what_is_left_and_lose_what_is_gone(ds, tmp_path):
    with tl.open(tmp_path / "two", create=True) as two:
        clone = two.clone(ds.chain.store.location)
        ds.push(tmp_path / "out")
        ds.drop_data(where="who = 'ann'", reason="request 17")
        ds.drop_data(upto=2, reason="old")
        update(clone)
        assert xs(clone) == xs(ds) == [11, 12, 21, 22, 31, 32]
        assert b"ann" not in texts(clone)
        assert kinds(clone.verify()) == {"removed"}
        ds.push(tmp_path / "out")
        fresh = two.clone(tmp_path / "out", "fresh")
        assert xs(fresh) == xs(ds)
        assert kinds(fresh.verify()) == {"removed"}
        names = {path.name for path in (tmp_path / "out" / "data").iterdir()}
        assert names == {path.name for path in (Path(ds.chain.store.location) / "data").iterdir()}


def test_a_keyed_dataset_with_removals_can_be_cloned(keyed, tmp_path):
    keyed.drop_data(where="k = 2", reason="request 18")
    keyed.append(pa.table({"k": [9], "v": ["neun"]}))
    with tl.open(tmp_path / "two", create=True) as two:
        clone = two.clone(keyed.chain.store.location)
        assert clone.view().to_arrow() == keyed.view().to_arrow()
        assert kinds(clone.verify()) == {"removed"}
        assert set(contents_left(clone)) == set(contents_left(keyed))


def contents_left(dataset):
    from trueline.chain.references import references

    removals = removals_of(dataset.chain)
    for _, block in dataset.blocks():
        for each in references(block, dataset.chain.store):
            if not removals.is_gone(block, each):
                assert dataset.chain.store.size(each.folder, each.hash) == each.size
                yield each.hash


def test_bytes_of_whole_copies_without_removals_are_equal(ds, tmp_path):
    ds.push(tmp_path / "out")
    with tl.open(tmp_path / "two", create=True) as two:
        assert contents(two.clone(tmp_path / "out")) == contents(ds)


# --- others -------------------------------------------------------------------------


def test_others_are_told_when_the_bytes_are_gone(ds):
    told = []

    @on_removal
    def listener(name, chain, removal):
        told.append((name, removal.reason, b"ann" in texts(ds)))

    try:
        ds.drop_data(where="who = 'ann'", reason="request 17")
        ds.drop_data(where="x = 12345", reason="none")
    finally:
        dropping._LISTENERS.remove(listener)
    assert told == [("trades", "request 17", False)]


def test_texts_that_could_not_be_read_go_with_the_records_they_came_with(ws, tmp_path):
    (tmp_path / "a.csv").write_text("n,who\n1,ann\nann-is-no-number,bob\n")
    ds = ws.create("files", schema=pa.schema({"n": pa.int64(), "who": pa.string()}))
    ds.append(str(tmp_path / "a.csv"))
    assert b"ann-is-no-number" in texts(ds)
    ds.drop_data(where="who = 'ann'", reason="request 21")
    assert b"ann-is-no-number" not in texts(ds)
    assert kinds(ds.verify()) == {"removed"}


def test_removal_works_in_an_object_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with tl.open("memory://removal/lake", create=True) as ws:
        ds = ws.create("trades", merge=tl.merge.upsert("x"))
        ds.append(pa.table({"x": [1, 2, 3], "who": ["ann", "bob", "ann"]}))
        ds.drop_data(where="who = 'ann'", reason="request 17")
        assert xs(ds) == [2]
        assert kinds(ds.verify()) == {"removed"}


@settings(max_examples=examples(25))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.lists(st.integers(0, 9), min_size=1, max_size=5)),
            st.tuples(st.just("upto"), st.integers(0, 30)),
            st.tuples(st.just("where"), st.integers(0, 9)),
        ),
        max_size=8,
    )
)
def test_what_is_left_is_what_a_list_has(tmp_path_factory, story):
    rows: list[tuple[int, int]] = []
    with tl.open(tmp_path_factory.mktemp("ws"), create=True) as ws:
        ws.config.set("storage.durable", False)
        ds = ws.create("trades", schema=pa.schema({"x": pa.int64()}))
        offset = 0
        for verb, given_ in story:
            if verb == "append":
                ds.append(pa.table({"x": pa.array(given_, pa.int64())}))
                rows += [(offset + n, x) for n, x in enumerate(given_)]
                offset += len(given_)
            elif verb == "upto" and given_ < offset:
                ds.drop_data(upto=given_, reason="old")
                rows = [(at, x) for at, x in rows if at > given_]
            elif verb == "where":
                ds.drop_data(where="x = :x", x=given_, reason="gone")
                rows = [(at, x) for at, x in rows if x != given_]
        events = ds.changes().to_arrow()
        found = (
            list(zip(events["offset"].to_pylist(), events["x"].to_pylist(), strict=True)) if offset else []
        )
        assert found == rows
        assert ds.view().row_count == len(rows)
        assert ds.view().removed == offset - len(rows)
        assert kinds(ds.verify()) <= {"removed"}


def test_state_that_comes_out_as_it_was_before_is_kept_and_looked_at(ws):
    ds = ws.create("keyed", merge=tl.merge.upsert("k"))
    ds.append(pa.table({"k": [1], "v": ["one"]}))
    before = state_files(ds)
    ds.append(pa.table({"k": [2], "v": ["two"]}))
    ds.drop_data(where="k = 2", reason="request 22")
    assert state_files(ds) == before, "the same rows are the same bytes"
    ws.gc(older_than=0)
    assert ds.get(1) == {"k": 1, "v": "one"}
    assert kinds(ds.verify()) == {"removed"}
    (Path(ds.chain.store.location) / "checkpoints" / before[0]).unlink()
    assert kinds(ds.verify()) == {"removed", "missing"}


def state_files(ds) -> list[str]:
    from trueline.chain.checkpoint import CheckpointFile

    raw = ds.chain.store.get(Folder.CHECKPOINTS, ds.chain.tail().checkpoint)
    return [file.hash for file in CheckpointFile.from_bytes(raw).files if "state" in file.notes]


@pytest.mark.parametrize("how", [{"upto": 2}, {"where": "x = 1"}])
def test_bad_cells_that_went_along_are_told_with_the_reason(ws, tmp_path, how):
    made = ws.create("read", schema=pa.schema({"x": pa.int64()}))
    (tmp_path / "a.csv").write_text("x\n1\noops\n3\n")
    (tmp_path / "b.csv").write_text("x\nwell\n5\n")
    first, second = (made.append(tmp_path / name) for name in ("a.csv", "b.csv"))
    made.drop_data(**how, reason="asked to forget")
    for commit in (first, made.commit(first.short), pickle.loads(pickle.dumps(first))):
        with pytest.raises(InputError, match="asked to forget") as told:
            commit.bad_cells()
        assert (told.value.code, told.value.rows) == ("Removed", 3 if "upto" in how else 1)
    assert second.bad_cells().to_arrow()["text"].to_pylist() == ["well"]


def test_bad_cells_that_are_lost_are_not_called_removed(ws, tmp_path):
    made = ws.create("read", schema=pa.schema({"x": pa.int64()}))
    (tmp_path / "a.csv").write_text("x\n1\noops\n3\n")
    commit = made.append(tmp_path / "a.csv")
    made.chain.store.delete(Folder.DATA, commit.bad_cells_file)
    with pytest.raises(ObjectMissing):
        commit.bad_cells()
