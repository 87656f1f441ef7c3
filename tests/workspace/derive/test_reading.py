"""Readers of derived data see current rows by the key of the definition, whole commits, what is at rest."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.workspace.derive.by_hand import advance, define, redefine
from tests.workspace.derive.small_slices import slices_of
from trueline.chain.checkpoint import is_ours
from trueline.chain.store.store import Folder
from trueline.errors import InputError

COLUMNS = pa.schema({"k": pa.string(), "n": pa.int64()})


def table(**rows):
    return pa.table({"k": list(rows), "n": list(rows.values())}, schema=COLUMNS)


def rows(view):
    return [(row["k"], row["n"]) for row in view.to_arrow().to_pylist()]


def without_state(dataset):
    """Remove the state, a cache."""
    store = dataset.chain.store
    for each in list(store.list(Folder.CHECKPOINTS)):
        if not is_ours(store.get(Folder.CHECKPOINTS, each.hash)):
            store.delete(Folder.CHECKPOINTS, each.hash)


@pytest.fixture
def small():
    """Slices of five records."""
    # It takes the number when it is loaded, and keeps it for the tests that follow.
    importlib.import_module("trueline.dataset.compact")
    with slices_of(5):
        yield


@pytest.mark.contract("derive:V6")
def test_no_retracted_row_and_no_pre_image_is_current(ws):
    ds = define(ws, "d", COLUMNS, ("k",))
    advance(ws, ds, table(a=1, b=2, c=3))
    second = advance(ws, ds, table(a=1, b=5, d=4))
    assert second.changes == "+1 ~1 -1 rows"
    assert second.current_rows == 3
    assert second.strategy == "recompute"
    for _ in range(2):
        assert rows(ds.view()) == [("a", 1), ("b", 5), ("d", 4)]
        assert ds.get("b")["n"] == 5
        assert ds.get("c") is None
        assert rows(ds.view(at=list(ds.log())[1])) == [("a", 1), ("b", 2), ("c", 3)]
        found = ds.diff(list(ds.log())[1]).to_arrow().to_pylist()
        assert [(row["op"], row["k"], row["n"]) for row in found] == [
            ("update_preimage", "b", 2),
            ("update_postimage", "b", 5),
            ("delete", "c", 3),
            ("insert", "d", 4),
        ]
        without_state(ds)
    assert ds.info.rows == 3
    (taken,) = second.to_dict()["inputs"]
    assert taken["offsets"] == [1, 2]


@pytest.mark.contract("derive:V13")
def test_a_part_is_nowhere_a_stop_and_pairs_lie_in_one_slice(ws, small, tmp_path):
    ds = define(ws, "d", COLUMNS, ("k",))
    names = [f"k{number:02}" for number in range(11)]
    first = advance(ws, ds, table(**dict.fromkeys(names, 1)))
    second = advance(ws, ds, table(k=9, **dict.fromkeys(names, 2)))
    assert len(first.blocks) == 3
    assert len(second.blocks) >= 5
    for _, block in ds.blocks():
        data = block.data_event.new_data if block.data_event else None
        if data is not None:
            with ds.chain.store.open(Folder.DATA, data.physical_hash) as file:
                ops = pq.read_table(file)["op"].to_pylist()
            assert ops[-1] != 2
            assert ops[0] != 3
    parts = [*first.blocks[:-1], *second.blocks[:-1]]
    for part in parts:
        end = ds.chain.entry(part).last_offset
        for reader in (ds.view, ds.changes, lambda at: ds.get("k01", at), ds.diff):
            for at in (part, str(part), end):
                with pytest.raises(InputError, match="inside a commit"):
                    reader(at)
        with pytest.raises(InputError, match="inside a commit"):
            ds.chain.reset(part)
    assert len(list(ds.log())) == 3
    assert rows(ds.view(at=first)) == [(name, 1) for name in names]
    assert ds.verify(replay=False).ok
    ds.push(tmp_path / "copy")
    with tl.open(tmp_path / "other", create=True) as other:
        copy = other.clone(tmp_path / "copy", "d")
        without_state(copy)
        assert rows(copy.view()) == rows(ds.view())
        assert copy.verify(replay=False).ok


@pytest.mark.contract("cut:P4")
@pytest.mark.contract("derive:V25")
def test_only_what_is_at_rest_is_read_unless_asked_for_by_hash(ws, tmp_path):
    ds = define(ws, "d", COLUMNS, ("k",))
    first = advance(ws, ds, table(a=1))
    second = advance(ws, ds, table(a=1, b=2), at_rest=False)
    for found in (ds.view(), ds.view(at="head"), ds.view(at=second.system_time)):
        assert rows(found) == [("a", 1)]
    assert ds.get("b") is None
    assert ds.changes().count() == 1
    assert rows(ds.view(at=second)) == [("a", 1), ("b", 2)]
    with pytest.raises(InputError, match="not at rest at offset 1") as caught:
        ds.view(at=1)
    assert caught.value.code == "NotAtRest"
    assert "give offset 0, or a hash" in caught.value.remedy
    ds.push(tmp_path / "copy")
    with tl.open(tmp_path / "other", create=True) as other:
        assert rows(other.clone(tmp_path / "copy", "d").view()) == [("a", 1)]
    # Coming to rest without a further record makes what was there readable, by its offset too.
    advance(ws, ds, table(a=1, b=2))
    assert rows(ds.view()) == rows(ds.view(at=1)) == [("a", 1), ("b", 2)]
    assert rows(ds.view(at=first)) == [("a", 1)]


def test_a_definition_that_nothing_was_computed_with_is_not_read_by(ws):
    ds = define(ws, "d", COLUMNS, ("k",))
    advance(ws, ds, table(a=1, b=1))
    redefine(ds, ("n",))
    assert rows(ds.view()) == [("a", 1), ("b", 1)]
    without_state(ds)
    assert rows(ds.view()) == [("a", 1), ("b", 1)]
    assert ds.get("b") == {"k": "b", "n": 1}
    advance(ws, ds, table(a=1, c=2))
    assert rows(ds.view()) == [("a", 1), ("c", 2)]
    assert ds.get(2) == {"k": "c", "n": 2}


@pytest.mark.contract("derive:V15")
@pytest.mark.contract("derive:V25")
def test_a_row_that_was_corrected_before_the_key_was_another_one_is_not_current(ws):
    """What a correction replaced has a key of its own then, and no event after it."""
    ds = define(ws, "d", COLUMNS, ("k",))
    first = advance(ws, ds, table(a=1, b=2))
    advance(ws, ds, table(a=3, b=2))
    redefine(ds, ("k", "n"))
    advance(ws, ds, table(a=3, b=2))
    shown = ds.diff(first).to_arrow().to_pylist()
    for _ in range(2):
        assert rows(ds.view()) == [("a", 3), ("b", 2)]
        assert ds.get(("a", 1)) is None
        assert ds.get(("a", 3)) == {"k": "a", "n": 3}
        assert ds.diff(first).to_arrow().to_pylist() == shown
        assert [(row["op"], row["k"], row["n"]) for row in shown] == [("delete", "a", 1), ("insert", "a", 3)]
        without_state(ds)
    assert advance(ws, ds, table(a=3, b=4)).changes == "+1 -1 rows"
    assert rows(ds.view()) == [("a", 3), ("b", 4)]


def test_the_number_of_a_copy_is_never_seen(ws):
    ds = define(ws, "d", COLUMNS)
    twice = pa.concat_tables([table(a=1, b=2), table(a=1)])
    advance(ws, ds, twice)
    advance(ws, ds, pa.concat_tables([twice, table(b=2)]))
    assert sorted(rows(ds.view())) == [("a", 1), ("a", 1), ("b", 2), ("b", 2)]
    for view in (ds.view(), ds.view(system=True), ds.changes(), ds.changes(system=True), ds.diff(2)):
        assert "copy_number" not in view.columns
    assert ds.columns == ("k", "n")
    for _ in range(2):
        assert ds.get(("a", 1)) == {"k": "a", "n": 1}
        assert ds.get({"k": "z", "n": 1}) is None
        without_state(ds)


@pytest.mark.contract("derive:V28")
def test_gc_keeps_state_and_checkpoints(ws):
    ds = define(ws, "d", COLUMNS, ("k",))
    advance(ws, ds, table(a=1, b=2))
    advance(ws, ds, table(a=1, b=3))
    assert ws.gc(older_than=0).objects == 0
    assert rows(ds.view()) == [("a", 1), ("b", 3)]
    assert ds.verify(replay=False).ok


@pytest.mark.contract("derive:V15")
@pytest.mark.parametrize("has_state", [True, False], ids=["with state", "without state"])
def test_the_key_in_force_at_a_commit_is_the_one_it_is_read_by(ws, has_state):
    ds = define(ws, "d", COLUMNS, ("k",))
    advance(ws, ds, table(a=1, b=1))
    first = advance(ws, ds, table(a=1, b=2, c=2))
    redefine(ds, ("n",))
    second = advance(ws, ds, table(a=1, c=2))
    third = advance(ws, ds, table(z=1, c=2, d=3))
    if not has_state:
        without_state(ds)
    assert rows(ds.view(at=first)) == [("a", 1), ("b", 2), ("c", 2)]
    assert rows(ds.view(at=second)) == [("a", 1), ("c", 2)]
    assert rows(ds.view()) == [("z", 1), ("c", 2), ("d", 3)]
    for commit, key, row in (
        (first, "b", {"k": "b", "n": 2}),
        (first, "z", None),
        (second, 2, {"k": "c", "n": 2}),
        (third, 1, {"k": "z", "n": 1}),
    ):
        assert ds.get(key, at=commit) == row
        assert ds.get({"k" if commit is first else "n": key}, at=commit) == row


@pytest.mark.contract("derive:V27")
def test_late_is_decided_once_and_for_records_of_roots_alone(ws):
    root = ws.create("events", event_time="t")
    seconds = pa.timestamp("ms", "UTC")

    def happened(*times):
        return pa.table({"t": pa.array([1000 * time for time in times], seconds)})

    root.append(happened(10), watermark="1970-01-01T00:00:05Z")
    root.append(happened(4, 6))
    decided = root.changes(system=True).to_arrow()["late"].to_pylist()
    assert decided == [False, True, False]
    root.append(happened(20), watermark="1970-01-01T00:00:15Z")
    assert root.changes(system=True).to_arrow()["late"].to_pylist() == [*decided, False]
    ds = define(ws, "d", COLUMNS, ("k",))
    advance(ws, ds, table(a=1))
    assert "late" not in ds.changes(system=True).columns


@pytest.mark.contract("derive:V28")
def test_compacting_changes_no_hash_and_no_answer(ws, monkeypatch):
    from trueline.chain.compacted import compact_files, known_files

    ds = define(ws, "d", COLUMNS, ("k",))
    commits = [advance(ws, ds, table(a=number, b=number // 2)) for number in range(6)]
    head = ds.head

    def answers():
        return [
            rows(ds.view()),
            rows(ds.view(at=commits[2])),
            ds.changes().to_arrow().to_pylist(),
            ds.changes(commits[1], commits[4]).to_arrow().to_pylist(),
            ds.diff(commits[0]).to_arrow().to_pylist(),
            ds.get("a", commits[3]),
        ]

    without_state(ds)
    before = answers()
    done = ds.compact()
    assert (done.files, done.slices, done.rows) == (1, 6, ds.info.events)
    assert str(done).startswith("6 slices with")
    (file,) = compact_files(ds.chain)
    assert ds.head == head
    # The slices are not opened any more where the file holds their records.
    opened = []
    real = type(ds.chain.store).open

    def counted(store, folder, name):
        opened.append(name)
        return real(store, folder, name)

    monkeypatch.setattr(type(ds.chain.store), "open", counted)
    ds.changes().to_arrow()
    assert [name for name in opened if ds.chain.store.size(Folder.DATA, name)] == [file.hash]
    monkeypatch.undo()
    assert answers() == before
    advance(ws, ds, table(a=9, c=9))
    assert rows(ds.view()) == [("a", 9), ("c", 9)]
    assert ws.gc(older_than=0).objects == 0
    assert compact_files(ds.chain) == [file]
    assert ds.verify(replay=False).ok
    # It is a cache: without the file, or without the index, the slices answer.
    ds.chain.store.delete(Folder.DATA, file.hash)
    assert rows(ds.view(at=commits[2])) == before[1]
    assert ds.compact().slices == 7
    kept = known_files(ds.chain)
    ds.chain.rebuild_index()
    assert known_files(ds.chain) == []
    assert rows(ds.view()) == [("a", 9), ("c", 9)]
    assert ws.gc(older_than=0).objects == len(kept)


def test_what_is_removed_does_not_stay_in_larger_files(ws):
    from trueline.chain.compacted import known_files

    root = ws.create("r")
    for number in range(4):
        root.append([{"x": number}])
    root.compact()
    (file,) = known_files(root.chain)
    root.drop_data(where="x = 1", reason="asked for")
    assert root.chain.store.size(Folder.DATA, file.hash) is None
    assert [row["x"] for row in root.view().to_arrow().to_pylist()] == [0, 2, 3]
    with pytest.raises(InputError, match="records were removed"):
        root.compact()


def test_a_larger_file_with_other_records_than_the_slices_is_found(ws):
    """Its bytes hash to its name; but no block names it, and whoever may write may name another."""
    import pyarrow.parquet as pq

    from trueline.chain.compacted import compact_files, keep_files

    root = ws.create("r")
    root.append([{"x": 0}])
    root.append([{"x": 1, "y": 2}], new_columns="add")
    root.compact()
    assert root.verify().ok
    (file,) = compact_files(root.chain)
    store = root.chain.store
    with store.open(Folder.DATA, file.hash) as opened:
        held = pq.read_table(opened)
    forged = held.set_column(held.column_names.index("x"), held.schema.field("x"), pa.chunked_array([[0, 7]]))
    sink = pa.BufferOutputStream()
    pq.write_table(forged, sink)
    raw = sink.getvalue().to_pybytes()
    keep_files(root.chain, [replace(file, hash=store.put(Folder.DATA, raw), size=len(raw))])
    assert [row["x"] for row in root.view().to_arrow().to_pylist()] == [0, 7]
    (problem,) = root.verify().problems
    assert "has other records than the slices it stands for" in problem.message


def test_a_damaged_larger_file_is_found_and_made_again(ws):
    from trueline.chain.compacted import compact_files

    root = ws.create("r")
    for number in range(3):
        root.append([{"x": number}])
    root.compact()
    (file,) = compact_files(root.chain)
    path = Path(root.chain.store.location, "data", str(file.hash))
    raw = bytearray(path.read_bytes())
    raw[20] ^= 1
    path.chmod(0o644)
    path.write_bytes(raw)
    (problem,) = root.verify().problems
    assert "compacted file" in problem.message
    path.unlink()
    root.compact()
    assert root.verify().ok


@pytest.mark.contract("derive:V13")
@pytest.mark.contract("cut:P4")
def test_spark_and_its_streams_read_what_is_at_rest(ws, small):
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from trueline.spark.source import TruelineSource

    ds = define(ws, "d", COLUMNS)
    names = [f"k{number}" for number in range(7)]
    advance(ws, ds, table(**dict.fromkeys(names, 1)))
    end = ds.chain.tail().last_offset
    advance(ws, ds, table(**dict.fromkeys(names, 2)), at_rest=False)

    def source(**options):
        return TruelineSource({"workspace": ws.location, "dataset": "d", **options})

    def read(reader, partitions):
        return [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]

    batch = source()
    assert batch.schema().names == ["k", "n"]
    reader = batch.reader(batch.schema())
    assert read(reader, reader.partitions()) == ds.view().to_arrow().to_pylist()
    assert {row["n"] for row in read(reader, reader.partitions())} == {1}
    with pytest.raises(Exception, match="not at rest"):
        source(at=f"offset:{ds.chain.tail().last_offset}")
    events = source(changes="true")
    stream = events.streamReader(events.schema())
    start = stream.initialOffset()
    latest = stream.latestOffset(start, ReadAllAvailable())
    assert latest["offset"] == end
    found = read(stream, stream.partitions(start, latest))
    assert [(row["op"], row["k"]) for row in found] == [("insert", name) for name in names]
    assert "copy_number" not in events.schema().names
    advance(ws, ds, table(**dict.fromkeys(names, 2)))
    moved = stream.latestOffset(latest, ReadAllAvailable())
    rest = read(stream, stream.partitions(latest, moved))
    assert moved["offset"] == ds.chain.tail().last_offset
    assert sorted((row["op"], row["n"]) for row in rest) == [("delete", 1)] * 7 + [("insert", 2)] * 7
