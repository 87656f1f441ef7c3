"""Writers at the same time, and writers that do not hear what became of their commit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

import trueline as tl
from tests.architecture import ROOT
from tests.dataset.append.test_faults import check_state, fold, state, write
from tests.examples import some
from tests.workspace.records import records
from trueline.chain.events import SetInfo
from trueline.chain.head_state import next_block
from trueline.chain.instant import Instant
from trueline.dataset.append import append as committing
from trueline.dataset.append import read_files as files
from trueline.dataset.append.files import FileIdentity
from trueline.errors import InputError, SchemaError

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}


def start(code, *args):
    """A process that waits for a line before it goes on where the code says so."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ready(*processes):
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()


def go(*processes):
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()


def answers(*processes):
    """What each says next; one that ended instead shows why."""
    said = [process.stdout.readline() for process in processes]
    gone = [process.stderr.read() for process, line in zip(processes, said, strict=True) if not line]
    assert not gone, "\n".join(gone)
    return said


def ended(*processes):
    said = [process.communicate(timeout=250) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return [out.splitlines() for out, _ in said]


# --- exactly once -----------------------------------------------------------------------


def handed_in(form, tmp_path):
    """The same data as a table, as rows, as files."""
    if form == "table":
        return pa.table({"id": [1, 2], "city": ["Bern", "Zug"]})
    if form == "rows":
        return [{"id": 1, "city": "Bern"}, {"id": 2, "city": "Zug"}]
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text("id,city\n1,Bern\n")
    b.write_text("id,city\n2,Zug\n")
    return [a, b]


@pytest.mark.parametrize("merge", ["append", "upsert", "ledger", "snapshot"])
@pytest.mark.parametrize("form", ["table", "rows", "files"])
def test_a_retry_after_another_writer_finds_the_first_commit(ws, tmp_path, form, merge):
    key = () if merge == "append" else ("id",)
    data = handed_in(form, tmp_path)
    ws.create("x", merge=getattr(tl.merge, merge)(*key))
    child = os.fork()
    if child == 0:
        # The one that dies before it hears of its commit.
        with tl.open(ws.location) as own:
            own["x"].append(data, idempotency_key="k")
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    ds = ws["x"]
    first = ds.head
    assert ds.info.rows == 2
    # The other one also makes the schema grow.
    ds.append(
        pa.table({"id": [1, 2, 3], "city": ["Bern", "Olten", "Chur"], "canton": ["BE", "SO", "GR"]}),
        new_columns="add",
    )
    before = ds.head
    again = ds.append(data, idempotency_key="k")
    assert (again.block, again.rows) == (first, 2)
    assert ds.head == before
    with pytest.raises(InputError) as refused:
        ds.append(pa.table({"id": [1, 2], "city": ["Bern", "Genf"]}), idempotency_key="k")
    assert refused.value.code == "KeyReused"
    assert ds.head == before


def test_other_files_under_the_same_key_are_refused(ws, tmp_path):
    ds = ws.create("x")
    one, two = handed_in("files", tmp_path)
    ds.append(one, idempotency_key="k")
    for other in ([two], [one, two]):
        with pytest.raises(InputError) as refused:
            ds.append(other, idempotency_key="k")
        assert refused.value.code == "KeyReused"
    assert ds.info.rows == 1


RETRY = """
import sys
import pyarrow as pa, trueline as tl
path, form, files = sys.argv[1], sys.argv[2], sys.argv[3:]
with tl.open(path) as ws:
    ds = ws["x"]
    ds.append(pa.table({"id": pa.array([], pa.int64())}))
    print("ready", flush=True)
    for round in range(10):
        sys.stdin.readline()
        data = files[round] if form == "files" else pa.table({"id": [round]})
        print(ds.append(data, idempotency_key=None if form == "files" else f"k{round}").block, flush=True)
"""


@pytest.mark.parametrize("form", ["key", "files"])
def test_two_processes_that_send_the_same_at_once_make_one_commit(ws, tmp_path, form):
    ds = ws.create("x", schema=pa.schema({"id": pa.int64()}))
    given = [write(tmp_path / f"{n}.csv", f"id\n{n}\n") for n in range(10)]
    writers = [start(RETRY, ws.location, form, *given) for _ in range(2)]
    ready(*writers)
    for _ in range(10):
        go(*writers)
        assert len(set(answers(*writers))) == 1
    ended(*writers)
    assert sorted(records(ds)["id"].to_pylist()) == list(range(10))
    assert (ds.info.commits, ds.verify().ok) == (11, True)


def test_a_file_that_another_writer_takes_in_between_two_looks_is_not_another_content(
    ws, tmp_path, monkeypatch
):
    ds = ws.create("x")
    given = write(tmp_path / "a.csv", "id\n1\n")
    entry, seen = FileIdentity.entry, []

    def late(identity, chain):
        found = entry(identity, chain)
        if not seen:
            seen.append(identity)
            with tl.open(ws.location) as other:
                seen.append(other["x"].append(given).block)
        return found

    monkeypatch.setattr(FileIdentity, "entry", late)
    commit = ds.append(given)
    assert (commit.block, commit.skipped) == (seen[1], (str(given),))
    assert (ds.info.rows, ds.info.commits) == (1, 2), "one that creates it, one that appends"


def test_a_file_that_another_process_takes_in_meanwhile_is_passed_over(ws, tmp_path, monkeypatch):
    ds = ws.create("x")
    one, two = handed_in("files", tmp_path)
    read_file, seen = files.read_file, []

    def slow(task):
        if not seen:
            seen.append(task)
            with tl.open(ws.location) as other:
                other["x"].append(two)
        return read_file(task)

    monkeypatch.setattr(files, "read_file", slow)
    commit = ds.append([one, two])
    assert (commit.rows, commit.skipped) == (1, (str(two),))
    assert records(ds)["id"].to_pylist() == [2, 1]
    assert ds.verify().ok


def test_a_name_that_another_process_takes_in_with_other_bytes_meanwhile_is_refused(
    ws, tmp_path, monkeypatch
):
    ds = ws.create("x")
    one, _ = handed_in("files", tmp_path)
    read_file, seen = files.read_file, []

    def slow(task):
        done = read_file(task)
        if not seen:
            seen.append(task)
            kept = one.read_text()
            one.write_text("id,city\n9,Thun\n")
            with tl.open(ws.location) as other:
                other["x"].append(one)
            one.write_text(kept)
        return done

    monkeypatch.setattr(files, "read_file", slow)
    with pytest.raises(InputError) as refused:
        ds.append(one)
    assert refused.value.code == "FileChanged"
    assert records(ds)["id"].to_pylist() == [9]


def test_an_event_time_that_another_process_declares_meanwhile_is_kept(ws, tmp_path, monkeypatch):
    ds = ws.create("x", schema=pa.schema({"id": pa.int64(), "city": pa.string()}))
    one, _ = handed_in("files", tmp_path)
    read_file, seen = files.read_file, []

    def slow(task):
        done = read_file(task)
        if not seen:
            seen.append(task)
            at = pa.array([0], pa.timestamp("ms", "UTC"))
            with tl.open(ws.location) as other:
                other["x"].append(pa.table({"id": [5], "city": ["Thun"], "event_time": at}))
        return done

    monkeypatch.setattr(files, "read_file", slow)
    with pytest.raises(tl.errors.SchemaError, match="event_time"):
        ds.append(one)
    assert ds.chain.tail().vocab.event_time_column == "event_time"
    assert records(ds)["id"].to_pylist() == [5]
    assert ds.verify().ok


@pytest.mark.parametrize("merge", ["upsert", "ledger", "snapshot"])
def test_a_column_that_another_process_adds_while_keyed_files_are_read_is_missing_in_them(
    ws, tmp_path, monkeypatch, merge
):
    ds = ws.create(merge, merge=getattr(tl.merge, merge)("id"))
    ds.append(pa.table({"id": [1, 7], "city": ["Bern", "Brig"]}))
    _, two = handed_in("files", tmp_path)
    read_file, seen = files.read_file, []

    def slow(task):
        if not seen:
            seen.append(task)
            with tl.open(ws.location) as other:
                other[merge].append(
                    pa.table({"id": [2, 3], "city": ["Zug", "Chur"], "canton": ["ZG", "GR"]}),
                    new_columns="add",
                )
        return read_file(task)

    monkeypatch.setattr(files, "read_file", slow)
    if merge == "snapshot":
        # Read now it lacks a column that is known, and every value of it would count as gone.
        with pytest.raises(SchemaError, match="lacks column 'canton'"):
            ds.append(two)
        return
    ds.append(two)
    current = {row["id"]: row["canton"] for row in fold(ds).values()}
    # An upsert keeps what it lacks, a ledger what was there first.
    assert current == {1: None, 7: None, 2: "ZG", 3: "GR"}
    check_state(ds)
    assert ds.verify().ok


# --- keyed writers at once --------------------------------------------------------------


UPSERT = """
import random, sys
import pyarrow as pa, trueline as tl
path, who, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with tl.open(path) as ws:
    ds = ws["x"]
    print("ready", flush=True)
    sys.stdin.readline()
    chance = random.Random(who)
    for number in range(count):
        ids = chance.sample(range(40), 8)
        table = pa.table({"id": ids, "who": [who] * 8, "number": [number] * 8})
        if number % 5 == 4:
            table = table.append_column("op", pa.array([1, 0] * 4, pa.int32()))
        ds.append(table)
"""


def test_keyed_batches_of_two_processes_at_once_are_all_applied(ws):
    ws.config.set("storage.durable", False)
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    writers = [start(UPSERT, ws.location, who, 60) for who in (1, 2)]
    ready(*writers)
    go(*writers)
    ended(*writers)
    table = records(ds)
    assert table["offset"].to_pylist() == list(range(table.num_rows))
    assert ds.info.commits == 121
    check_state(ds)
    # Each writer's batches follow each other, and none is missing: the last of a key is one of the last.
    for who in (1, 2):
        numbers = [row["number"] for row in table.to_pylist() if row["who"] == who and row["op"] in (0, 3)]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(60))
    assert ds.verify().ok


SMALL = """
import sys, threading
import pyarrow as pa, trueline as tl
with tl.open(sys.argv[1]) as ws:
    ds = ws["x"]
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stopped.set()), daemon=True).start()
    number = 0
    while not stopped.is_set() or number < 3:
        ds.append(pa.table({"id": [1_000_000 + number], "who": ["small"]}))
        number += 1
        if number == 3:
            print("ready", flush=True)
    print(number, flush=True)
"""


@pytest.mark.sampled
@pytest.mark.parametrize("merge", some(["append", "ledger", "upsert"], 2))
def test_a_large_ingest_completes_beside_a_process_that_appends_all_the_time(ws, small, monkeypatch, merge):
    key = () if merge == "append" else ("id",)
    ds = ws.create(
        "x", merge=getattr(tl.merge, merge)(*key), schema=pa.schema({"id": pa.int64(), "who": pa.string()})
    )
    prepared, prepare = [], committing.prepare

    def counted(chain, tail, order, *rest):
        made = prepare(chain, tail, order, *rest)
        prepared.append(made)
        return made

    monkeypatch.setattr(committing, "prepare", counted)
    other = start(SMALL, ws.location)
    ready(other)
    commits = [
        ds.append(pa.table({"id": range(n, n + 250), "who": ["large"] * 250})) for n in (0, 1000, 2000)
    ]
    go(other)
    ((count,),) = ended(other)
    assert [len(commit.blocks) for commit in commits] == [25] * 3
    assert 3 <= len(prepared) <= 6, "each is written again at most once"
    table = records(ds)
    assert table["offset"].to_pylist() == list(range(750 + int(count)))
    for commit, first in zip(commits, (0, 1000, 2000), strict=True):
        mine = table.slice(commit.offsets.start, 250)
        assert mine["id"].to_pylist() == list(range(first, first + 250))
    others = [row["id"] for row in table.to_pylist() if row["who"] == "small"]
    assert others == list(range(1_000_000, 1_000_000 + int(count)))
    if merge == "upsert":
        check_state(ds)
    elif merge == "ledger":
        assert sorted(state(ds)) == table["offset"].to_pylist()
    assert ds.verify().ok


@pytest.mark.parametrize("merge", ["append", "upsert"])
def test_a_writer_that_takes_no_turns_costs_a_rewrite_twice_and_loses_nothing(ws, small, monkeypatch, merge):
    key = () if merge == "append" else ("id",)
    ds = ws.create("x", merge=getattr(tl.merge, merge)(*key))
    ds.append(pa.table({"id": [0]}))
    published, publish = [], committing.publish

    def interrupted(chain, prepared, order):
        published.append(prepared)
        if len(published) <= committing.LOST_RACES:
            with tl.open(ws.location) as other:
                foreign = other["x"].chain
                tail = foreign.tail()
                now = Instant(max(Instant.now(), tail.system_time + 1))
                foreign.append(next_block(tail, SetInfo(description=f"{len(published)}"), now))
        return publish(chain, prepared, order)

    monkeypatch.setattr(committing, "publish", interrupted)
    commit = ds.append(pa.table({"id": range(1, 41)}))
    assert len(published) == 3
    assert commit.offsets == range(1, 41)
    assert records(ds)["id"].to_pylist() == list(range(41))
    assert ds.info.commits == 5
    if merge == "upsert":
        check_state(ds)
    ws.gc(older_than=0)
    assert ds.verify().ok


WITHOUT_TURNS = """
import sys, threading
import pyarrow as pa, trueline as tl
from contextlib import nullcontext
from trueline.chain.store.file import FileStore
FileStore.turn = lambda self, *, alone=False: nullcontext()
with tl.open(sys.argv[1]) as ws:
    ds = ws["x"]
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stopped.set()), daemon=True).start()
    number = 0
    while not stopped.wait(float(sys.argv[2])) or number < 3:
        ds.append(pa.table({"id": [1_000_000 + number], "who": ["small"]}))
        number += 1
        if number == 3:
            print("ready", flush=True)
    print(number, flush=True)
"""


@pytest.mark.parametrize("merge", ["append", "upsert"])
def test_a_large_ingest_completes_beside_a_process_that_takes_no_turns(ws, small, monkeypatch, merge):
    key = () if merge == "append" else ("id",)
    ds = ws.create(
        "x", merge=getattr(tl.merge, merge)(*key), schema=pa.schema({"id": pa.int64(), "who": pa.string()})
    )
    written, prepare = [], committing.prepare

    def slowly(chain, tail, order, *rest):
        """Prepare, and leave the other writer the time for a commit, which it makes if it can."""
        made = prepare(chain, tail, order, *rest)
        written.append(len(made.written))
        assert len(written) < 10, "it starves"
        for _ in range(500):
            if chain.store.head() != tail.head:
                break
            stalled.wait(0.001)
        return made

    stalled = threading.Event()
    monkeypatch.setattr(committing, "prepare", slowly)
    other = start(WITHOUT_TURNS, ws.location, 0.1)
    ready(other)
    commit = ds.append(pa.table({"id": range(250), "who": ["large"] * 250}))
    go(other)
    ((count,),) = ended(other)
    assert written == [25] * (2 + committing.LOST_RACES), "ahead, in two turns that were lost, and alone"
    assert len(commit.blocks) == 25
    table = records(ds)
    assert table["offset"].to_pylist() == list(range(250 + int(count)))
    assert table.slice(commit.offsets.start, 250)["id"].to_pylist() == list(range(250))
    if merge == "upsert":
        check_state(ds)
    assert ds.verify().ok
