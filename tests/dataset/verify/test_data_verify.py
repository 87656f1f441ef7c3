"""Verification looks at the rows: what a block says of its slice has to be true."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import trueline as tl
from tests.dataset.verify.forging import add, honest, moment, part, with_column
from trueline.chain.checkpoint import CheckpointFile, StateFile
from trueline.chain.events import Checkpoint
from trueline.chain.head_state import next_add_data, next_block
from trueline.chain.store.store import Folder
from trueline.dataset.verify.files import Task
from trueline.identity.multihash import Multihash
from trueline.kernel.tasks import InlineTasks


@pytest.fixture
def ds(ws):
    made = ws.create("trades")
    made.append(pa.table({"x": [1, 2, 3], "s": ["a", None, "c"]}))
    return made


@pytest.fixture
def keyed(ws):
    made = ws.create("keyed", merge=tl.merge.changelog("k"))
    made.append(pa.table({"op": pa.array([0, 0], pa.int32()), "k": ["a", "b"], "v": [1, 2]}))
    return made


def problem(report):
    """The only problem of a report."""
    assert len(report.problems) == 1, report.problems
    return report.problems[0]


def path_of(ds, name, folder="data"):
    from pathlib import Path

    return Path(ds.chain.store.location) / folder / name


def slice_of(ds, block):
    return ds.chain.block(block).data_event.new_data


# --- files ------------------------------------------------------------------------


def test_what_is_written_verifies(ws, ds, keyed):
    ds.append(pa.table({"x": [4], "s": ["d"]}))
    report = ws.verify()
    assert report.ok
    assert report.problems == ()
    assert report.objects >= 3
    assert report.bytes > 1000


def test_a_flipped_byte_names_block_file_and_both_hashes(ds):
    commit = ds.append(pa.table({"x": [4], "s": ["d"]}))
    data = slice_of(ds, commit.block)
    path = path_of(ds, data.physical_hash)
    raw = bytearray(path.read_bytes())
    raw[40] ^= 1
    path.write_bytes(raw)
    found = problem(ds.verify())
    assert found.kind == "corrupt"
    assert found.block == commit.block
    assert found.sequence_number == commit.sequence_number
    assert found.file == f"data/{data.physical_hash}"
    assert (found.expected, found.actual) == (data.physical_hash, Multihash.of(raw))
    assert found.actual in found.message


def test_a_file_that_lost_its_end_tells_both_sizes(ds):
    data = slice_of(ds, ds.head)
    path = path_of(ds, data.physical_hash)
    path.write_bytes(path.read_bytes()[:-7])
    found = problem(ds.verify())
    assert (found.kind, found.expected, found.actual) == ("corrupt", str(data.size), str(data.size - 7))


@pytest.mark.contract("chain:G5")
def test_a_file_that_is_gone_is_missing(ds):
    path_of(ds, slice_of(ds, ds.head).physical_hash).unlink()
    found = problem(ds.verify())
    assert (found.kind, found.block) == ("missing", ds.head)


def test_a_folder_in_the_place_of_a_file_is_told(ds):
    path = path_of(ds, slice_of(ds, ds.head).physical_hash)
    path.unlink()
    path.mkdir()
    assert problem(ds.verify()).kind == "corrupt"


def test_all_damaged_files_are_told_not_the_first_only(ds):
    commits = [ds.append(pa.table({"x": [n], "s": ["d"]})) for n in range(3)]
    for commit in commits[:2]:
        path_of(ds, slice_of(ds, commit.block).physical_hash).unlink()
    assert [found.block for found in ds.verify().problems] == [c.block for c in commits[:2]]


def test_only_what_lies_within_the_bounds_is_looked_at(ds):
    first = ds.head
    second = ds.append(pa.table({"x": [4], "s": ["d"]}))
    third = ds.append(pa.table({"x": [5], "s": ["e"]}))
    path_of(ds, slice_of(ds, second.block).physical_hash).unlink()
    assert ds.verify(upto=first).ok
    assert ds.verify(after=second).ok
    assert not ds.verify(after=first, upto=second).ok
    assert not ds.verify(upto=third).ok


def test_bytes_that_are_no_parquet_are_corrupt_though_their_hash_is_right(ds, monkeypatch):
    time = moment(ds)
    rows = honest(ds, 2, time, x=[4, 5], s=["d", "e"])
    monkeypatch.setattr("tests.dataset.verify.forging.file_of", lambda _: b"PAR1 is not enough PAR1")
    add(ds, rows, time)
    assert "Parquet" in problem(ds.verify()).message


# --- rows -------------------------------------------------------------------------


def test_honest_rows_of_another_writer_verify(ds):
    time = moment(ds)
    add(ds, honest(ds, 2, time, x=[4, 5], s=["d", None]), time)
    assert ds.verify().ok


@pytest.mark.contract("chain:G4")
@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("offset", [3, 5, 4], ("offset 5 in row 1, not 4", "4", "5")),
        ("offset", [0, 1, 2], ("offset 0 in row 0, not 3", "3", "0")),
        ("op", [0, 7, 0], ("operation 7 in row 1", "0 to 3", "7")),
        ("op", [0, -1, 0], ("operation -1 in row 1", "0 to 3", "-1")),
        ("op", [0, 2, 0], ("a correct-from without its correct-to", "3", "0")),
        ("op", [0, 3, 0], ("a correct-to without its correct-from", "2", "0")),
        ("op", [2, 2, 3], ("a correct-from without its correct-to", "3", "2")),
        ("op", [2, 3, 3], ("a correct-to without its correct-from", "2", "3")),
    ],
)
def test_rows_that_are_not_what_the_block_says_are_corrupt(ds, column, values, said):
    time = moment(ds)
    rows = honest(ds, 3, time, x=[4, 5, 6], s=["d", "e", "f"])
    block = add(ds, with_column(rows, column, values), time)
    found = problem(ds.verify())
    text, expected, actual = said
    assert text in found.message
    assert (found.kind, found.block, found.expected, found.actual) == ("corrupt", block, expected, actual)


def test_a_system_time_that_is_not_the_blocks_is_corrupt(ds):
    time = moment(ds)
    rows = honest(ds, 2, time, x=[4, 5], s=["d", "e"])
    add(ds, with_column(rows, "system_time", [int(time) // 1_000_000, 17]), time)
    found = problem(ds.verify())
    assert "system time 1970-01-01T00:00:00.017Z in row 1" in found.message
    assert found.expected == str(time)


def test_another_logical_hash_is_corrupt(ds):
    time = moment(ds)
    rows = honest(ds, 2, time, x=[4, 5], s=["d", "e"])
    other = slice_of(ds, ds.head).logical_hash
    add(ds, rows, time, logical=other)
    found = problem(ds.verify())
    assert "logical hash" in found.message
    assert found.expected == other


@pytest.mark.contract("chain:G4")
@pytest.mark.parametrize("rows", [1, 3])
def test_more_or_fewer_rows_than_the_interval_are_corrupt(ds, rows):
    time = moment(ds)
    add(ds, honest(ds, 2, time, x=[4, 5], s=["d", "e"]), time, rows=rows)
    found = problem(ds.verify())
    assert (found.expected, found.actual) == (str(rows), "2")


def test_columns_that_are_not_those_in_force_are_corrupt(ds):
    time = moment(ds)
    rows = honest(ds, 1, time, x=[4], s=["d"])
    add(ds, rows.rename_columns(["offset", "op", "system_time", "event_time", "x", "t"]), time)
    time = moment(ds)
    rows = honest(ds, 1, time, x=[4], s=["d"])
    text = rows.set_column(4, "x", pa.array(["4"]))
    add(ds, text, time)
    first, second = ds.verify().problems
    assert "columns offset, op, system_time, event_time, x, t" in first.message
    assert "column x was" in second.message


def test_a_missing_value_in_a_required_column_is_corrupt(ws):
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    ds = ws.create("strict", schema=schema)
    ds.append(pa.table({"x": [1]}, schema=schema))
    time = moment(ds)
    rows = honest(ds, 2, time, x=[4, 5])
    optional = rows.set_column(4, pa.field("x", pa.int64()), pa.array([4, None]))
    add(ds, optional, time)
    found = problem(ds.verify())
    assert "1 null values in column 'x'" in found.message


def test_a_file_with_optional_columns_where_they_are_required_is_sound(ws):
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    ds = ws.create("strict", schema=schema)
    time = moment(ds)
    rows = honest(ds, 2, time, x=[4, 5])
    loose = pa.schema([field.with_nullable(True) for field in rows.schema])
    add(ds, rows.cast(loose), time)
    assert ds.verify().ok


def test_a_change_of_one_key_to_another_is_corrupt(keyed):
    time = moment(keyed)
    block = add(keyed, honest(keyed, 2, time, ops=[2, 3], k=["a", "b"], v=[1, 5]), time)
    found = problem(keyed.verify())
    assert "corrects one key to another in row 1: k 'a' and 'b'" in found.message
    assert found.block == block


def test_pairs_are_matched_across_batches_of_rows(keyed, monkeypatch):
    monkeypatch.setattr("trueline.dataset.verify.files._BATCH_ROWS", 1)
    time = moment(keyed)
    add(keyed, honest(keyed, 2, time, ops=[2, 3], k=["a", "a"], v=[1, 5]), time)
    assert keyed.verify().ok
    time = moment(keyed)
    add(keyed, honest(keyed, 2, time, ops=[2, 3], k=["a", "b"], v=[1, 5]), time)
    assert "one key to another" in problem(keyed.verify()).message


def test_a_pair_may_lie_in_two_slices_of_one_commit(keyed):
    time = moment(keyed)
    add(keyed, honest(keyed, 1, time, ops=[2], k=["a"], v=[1]), time, record=part(1, 2))
    add(keyed, honest(keyed, 1, time, ops=[3], k=["a"], v=[5]), time, record=part(2, 2))
    assert keyed.verify().ok


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (([2], ["a"]), ([3], ["b"]), "corrects one key to another"),
        (([2], ["a"]), ([0], ["c"]), "ends with a correct-from"),
        (([0], ["c"]), ([3], ["c"]), "begins with a correct-to"),
    ],
)
def test_halves_in_two_slices_that_do_not_fit_are_corrupt(keyed, first, second, said):
    time = moment(keyed)
    for number, (ops, keys) in enumerate((first, second), 1):
        add(keyed, honest(keyed, 1, time, ops=ops, k=keys, v=[1]), time, record=part(number, 2))
    assert said in problem(keyed.verify()).message


def test_a_half_at_the_end_of_the_dataset_is_corrupt(keyed):
    time = moment(keyed)
    add(keyed, honest(keyed, 1, time, ops=[2], k=["a"], v=[1]), time)
    assert "ends with a correct-from" in problem(keyed.verify()).message


# --- commits ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([part(1, 3), part(3, 3)], "it is part 3 of 3 of a commit, where part 2 of 3 is to follow"),
        ([part(1, 3), part(2, 2)], "it is part 2 of 2 of a commit, where part 2 of 3 is to follow"),
        ([part(2, 2)], "it is part 2 of 2 of a commit, where a commit begins"),
        ([part(1, 2), part(1, 1)], "it is part 1 of 1 of a commit, where part 2 of 2 is to follow"),
        ([part(1, 2)], "the dataset ends with part 1 of a commit of 2"),
    ],
)
def test_commits_are_whole_and_in_order(ds, parts, said):
    for record in parts:
        time = moment(ds)
        add(ds, honest(ds, 1, time, x=[4], s=["d"]), time, record=record)
    assert said in problem(ds.verify()).message


def test_a_range_that_ends_or_begins_inside_a_commit_is_not_called_torn(ds):
    time = moment(ds)
    parts = (part(1, 3), part(2, 3), part(3, 3))
    blocks = [add(ds, honest(ds, 1, time, x=[4], s=["d"]), time, record=each) for each in parts]
    assert ds.verify(upto=blocks[1]).ok
    assert ds.verify(after=blocks[0]).ok


# --- checkpoints ------------------------------------------------------------------


def checkpoint(ds, raw: bytes, **data) -> None:
    chain = ds.chain
    tail = chain.tail()
    new = Checkpoint(chain.store.put(Folder.CHECKPOINTS, raw), len(raw))
    chain.append(next_block(tail, next_add_data(tail, new_checkpoint=new, **data), moment(ds)))


def test_a_checkpoint_without_data_is_looked_at(ds):
    checkpoint(ds, b"of another engine")
    name = ds.chain.tail().checkpoint
    path_of(ds, name, "checkpoints").write_bytes(b"of another Engine")
    found = problem(ds.verify())
    assert (found.file, found.expected) == (f"checkpoints/{name}", name)


@pytest.mark.contract("chain:G5")
def test_a_checkpoint_that_is_gone_is_missing(keyed):
    name = keyed.chain.tail().checkpoint
    path_of(keyed, name, "checkpoints").unlink()
    found = problem(keyed.verify())
    assert (found.kind, found.file) == ("missing", f"checkpoints/{name}")


def test_the_state_files_of_a_checkpoint_are_looked_at(keyed):
    store = keyed.chain.store
    name = keyed.chain.tail().checkpoint
    listed = CheckpointFile.from_bytes(store.get(Folder.CHECKPOINTS, name)).files
    assert listed
    path_of(keyed, listed[0].hash, "checkpoints").unlink()
    found = problem(keyed.verify())
    assert (found.kind, found.file) == ("missing", f"checkpoints/{listed[0].hash}")


def test_a_list_of_state_files_out_of_order_is_corrupt(ds):
    name = ds.chain.store.put(Folder.CHECKPOINTS, b"state")
    file = StateFile(
        name, 5, {"state": "state", "generation": 4, "part": 0, "rows": 1, "first": "", "last": ""}
    )
    checkpoint(ds, CheckpointFile((file,)).to_bytes())
    assert "out of order" in problem(ds.verify()).message


# --- how it works -----------------------------------------------------------------


def test_the_work_can_be_given_to_other_processes(ds):
    class Elsewhere(InlineTasks):
        def map(self, function, descriptors, *, label):
            sent = pickle.loads(pickle.dumps([function, list(descriptors)]))
            yield from super().map(*sent, label=label)

    from trueline.dataset.verify import verify_data

    report = verify_data(ds.chain, None, ds.head, tasks=Elsewhere())
    assert (report.ok, report.objects) == (True, 1)


def test_files_are_looked_at_side_by_side_and_told_in_order(ds, monkeypatch):
    import threading

    commits = [ds.append(pa.table({"x": [n], "s": ["d"]})) for n in range(4)]
    for commit in commits:
        path_of(ds, slice_of(ds, commit.block).physical_hash).unlink()
    both = threading.Barrier(2, timeout=30)
    from trueline.dataset.verify import verify as verifying

    def waits(task: Task):
        both.wait()
        return original(task)

    original = verifying.check_file
    monkeypatch.setattr(verifying, "check_file", waits)
    head = ds.append(pa.table({"x": [9], "s": ["d"]})).block  # six files: three pairs
    report = verifying.verify_data(ds.chain, None, head, tasks=InlineTasks(workers=2))
    assert [found.block for found in report.problems] == [commit.block for commit in commits]


def test_progress_counts_blocks_then_files(ds):
    told: list[int] = []
    ds.append(pa.table({"x": [4], "s": ["d"]}))
    ds.verify(progress=told.append)
    assert told == [1, 2]


def test_objects_that_are_not_on_a_disk_are_fetched_once():
    from trueline.chain.store.object import ObjectStore

    with tl.open("memory://verify-once/lake", create=True) as ws:
        ds = ws.create("trades")
        ds.append(pa.table({"x": list(range(1000))}))
        read: list[int] = []
        original = ObjectStore._range

        def counted(self, folder, name, start, length):
            if folder is Folder.DATA:
                read.append(length)
            return original(self, folder, name, start, length)

        ObjectStore._range = counted
        try:
            assert ds.verify().ok
        finally:
            ObjectStore._range = original
        assert sum(read) == slice_of(ds, ds.head).size


def test_a_column_without_a_portable_hash_is_told_as_not_checked(ds):
    from trueline.dataset.verify.files import _hasher, _Notes

    notes = _Notes(subject=None)

    class Wanted:
        logical = Multihash.of(b"")

    schema = pa.schema({"d": pa.duration("s")})
    assert _hasher(schema, Wanted, notes) is None
    assert "logical hash" in notes.not_checked[0]
