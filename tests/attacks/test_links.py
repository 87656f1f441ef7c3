"""Links inside a workspace: nothing is read, written or deleted where they lead (guard:G2)."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trueline as tl
from tests.chain.store.ledger import commit, walk
from tests.faults import WatchedFiles
from trueline.chain.store.file import FileStore
from trueline.chain.store.folders import Inside
from trueline.chain.store.gc import collect
from trueline.chain.store.scratch import FolderScratch
from trueline.chain.store.store import Folder
from trueline.cli import main
from trueline.errors import BadName, CorruptionError, LinkRefused, TruelineError
from trueline.identity.multihash import Multihash
from trueline.workspace.doctor import examine

pytestmark = pytest.mark.contract("guard:G2")

LONG_AGO = 1_600_000_000
LEASE = "host-1-2-3a"
ROWS = pa.table({"id": [1, 2], "city": ["Bern", "Zug"]})

# What a workspace has on disk, and whether a command may do without it: then it need not say anything.
FOLDERS = [
    "datasets/sales/data",
    "datasets/sales/blocks",
    "datasets/sales/refs",
    "datasets/sales/checkpoints",
    "datasets/sales/private",
    "datasets/sales/private/scratch",
    "datasets/sales/private/staging",
    "datasets/sales/private/leases",
    "datasets/sales",
    "datasets",
    ".trueline",
    ".trueline/incoming",
    ".trueline/incoming/copy",
    ".trueline/index",
    ".trueline/keys",
    "datasets/.origins",
    ".trueline/seen",
]


def build(path: Path) -> None:
    """Make a workspace with one of everything that is kept on disk, leftovers of dead writers included."""
    with tl.open(path / "origin", create=True) as there:
        there.create("copy").append(ROWS)
    (path / "inbox").mkdir()
    (path / "inbox" / "a.csv").write_text("id,city\n1,Bern\n", encoding="utf-8")
    os.utime(path / "inbox" / "a.csv", (LONG_AGO, LONG_AGO))
    with tl.open(path / "ws", create=True) as ws:
        ws.config.set("storage.durable", False)
        sales = ws.create("sales", merge=tl.merge.upsert("id"))
        sales.append(ROWS)
        sales.append(pa.table({"id": [2, 3], "city": ["Chur", "Basel"]}))
        ws.create("polled", source=tl.source(path / "inbox" / "*.csv"))
        ws.pull("polled")
        ws.clone(path / "origin" / "datasets" / "copy", "copy")
    incoming = FileStore(path / "ws" / ".trueline" / "incoming" / "copy", durable=False)
    incoming.put(Folder.BLOCKS, b"on its way")
    incoming.sync()
    incoming.close()
    private = path / "ws" / "datasets" / "sales" / "private"
    leave_dead_writer(private)
    half = path / "ws" / "datasets" / "half"
    for name in ("blocks", "private/leases"):
        (half / name).mkdir(parents=True)
    (half / "blocks" / Multihash.of(b"half")).write_bytes(b"half")
    shutil.copy(path / "ws" / ".trueline" / "index" / "sales.sqlite", path / "gone.sqlite")
    shutil.move(path / "gone.sqlite", path / "ws" / ".trueline" / "index" / "gone.sqlite")
    (path / "ws" / ".trueline" / "seen").mkdir(exist_ok=True)
    for name in ("polled", "gone"):
        (path / "ws" / ".trueline" / "seen" / f"{name}.json").write_text('{"version": 1, "files": {}}')
    make_old(path)


def leave_dead_writer(private: Path) -> None:
    """Put there what a writer that was killed leaves."""
    for name in ("leases", "staging", "scratch"):
        (private / name).mkdir(parents=True, exist_ok=True)
    (private / "leases" / LEASE).touch()
    (private / "staging" / f"{LEASE}.0").write_bytes(b"staged")
    (private / "scratch" / f"{LEASE}.abcd").mkdir(exist_ok=True)
    (private / "scratch" / f"{LEASE}.abcd" / "run-1").write_bytes(b"rows")


def make_old(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)


def spread(victim: Path) -> None:
    """Fill a folder with what our commands would take for their own, deep and flat."""
    leave_dead_writer(victim)
    for folder in (victim, victim / "blocks", victim / "data", victim / "refs", victim / "sales"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / Multihash.of(b"mine")).write_bytes(b"mine")
        (folder / "letter.txt").write_text("dear", encoding="utf-8")
    (victim / LEASE).touch()
    (victim / f"{LEASE}.0").write_bytes(b"mine")
    (victim / f"{LEASE}.abcd").mkdir(exist_ok=True)
    (victim / f"{LEASE}.abcd" / "letter.txt").write_text("dear", encoding="utf-8")
    (victim / "copy").mkdir(exist_ok=True)
    (victim / "copy" / "letter.txt").write_text("dear", encoding="utf-8")
    for name in ("stale.sqlite", "stale.sqlite-wal", "stale.json"):
        (victim / name).write_bytes(b"mine")


def seen(folder: Path) -> dict[str, tuple[int, int, bytes | None]]:
    """Everything in a folder: bytes, times, kinds; what was only read looks the same."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        of = path.lstat()
        found[str(path)] = (of.st_mtime_ns, of.st_mode, path.read_bytes() if path.is_file() else None)
    return found


def replace_by_link(path: Path, victim: Path) -> None:
    """Move a file or folder out of the workspace, its content with it, and leave a link to it."""
    if path.is_dir():
        shutil.move(path, victim)
        spread(victim)
        make_old(victim)
    else:
        victim.mkdir(exist_ok=True)
        shutil.move(path, victim / "file")
        victim = victim / "file"
    path.symlink_to(victim)


def cloned_again(ws: tl.Workspace, tmp: Path) -> None:
    """Bring a clone up to an origin that has something new."""
    with tl.open(tmp / "origin") as there:
        there["copy"].append(ROWS)
    ws.clone(tmp / "origin" / "datasets" / "copy", "copy")


Command = Callable[[tl.Workspace, Path], Any]

READING: dict[str, Command] = {
    "list": lambda ws, _: [dataset.info for dataset in ws.datasets()],
    "health": lambda ws, _: ws["sales"].health(),
    "log": lambda ws, _: list(ws["sales"].log()),
    "show": lambda ws, _: ws["sales"].view().to_arrow(),
    "changes": lambda ws, _: ws["sales"].changes().to_arrow(),
    "schema": lambda ws, _: ws["sales"].schema,
    "origin": lambda ws, _: ws["copy"].origin,
    "verify": lambda ws, _: verified(ws),
    "dry gc": lambda ws, _: ws.gc(older_than=0, dry_run=True),
}
CHANGING: dict[str, Command] = {
    "gc": lambda ws, _: ws.gc(older_than=0),
    "append": lambda ws, _: ws["sales"].append(pa.table({"id": [9], "city": ["Genf"]})),
    "create": lambda ws, _: ws.create("another").append(ROWS),
    "pull": lambda ws, _: ws.pull("polled"),
    "clone": cloned_again,
    "clone anew": lambda ws, tmp: ws.clone(tmp / "origin" / "datasets" / "copy", "fresh"),
    "export": lambda ws, tmp: ws["sales"].export(tmp / "out.parquet", overwrite=True),
    "push": lambda ws, tmp: ws["sales"].push(tmp / "pushed"),
    "drop data": lambda ws, _: ws["sales"].drop_data(where="id = 1", reason="asked for"),
    "configure": lambda ws, _: ws.config.set("gc.older_than", "2d"),
}
COMMANDS = READING | CHANGING


def verified(ws: tl.Workspace) -> None:
    report = ws.verify()
    if not report.ok:
        raise CorruptionError(str(report.problems[0]), remedy="see the report", code="found")


def attempt(ws_path: Path, tmp: Path, command: Command) -> TruelineError | None:
    """Do it; an error has to be one of ours, with a remedy."""
    found = None
    try:
        with tl.open(ws_path) as ws:
            command(ws, tmp)
    except TruelineError as error:
        found = error
    assert found is None or found.remedy
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("links")
    build(path)
    return path


@pytest.fixture
def tmp(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path


# --- folders ------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_a_linked_folder_leads_to_is_left_alone(tmp: Path, folder: str) -> None:
    replace_by_link(tmp / "ws" / folder, tmp / "victim")
    before = seen(tmp / "victim")
    errors = {}
    for name, command in COMMANDS.items():
        errors[name] = attempt(tmp / "ws", tmp, command)
        assert seen(tmp / "victim") == before, name
    refused = [error for error in errors.values() if isinstance(error, LinkRefused | BadName)]
    assert refused
    assert any(str(tmp / "ws" / folder) in error.problem for error in refused)


@pytest.mark.parametrize(
    ("folder", "commands"),
    [
        ("datasets/sales/data", ["changes", "verify", "gc", "dry gc", "drop data"]),
        ("datasets/sales/blocks", ["show", "verify", "gc", "append", "push"]),
        ("datasets/sales/refs", ["health", "log", "show", "verify", "gc", "append", "push"]),
        ("datasets/sales/checkpoints", ["verify", "append", "gc"]),
        ("datasets/sales/private", ["health", "gc", "append", "drop data"]),
        ("datasets/sales/private/scratch", ["gc"]),
        ("datasets/sales/private/staging", ["health", "gc", "append"]),
        ("datasets/sales/private/leases", ["health", "gc", "append"]),
        ("datasets", ["list", "log", "show", "verify", "gc", "append", "create", "clone anew"]),
        (".trueline", ["health", "log", "show", "gc", "append", "create", "clone"]),
        (".trueline/incoming", ["clone anew"]),
        (".trueline/index", ["health", "log", "show", "gc", "append", "create"]),
        (".trueline/keys", ["create"]),
        ("datasets/.origins", ["origin", "clone", "clone anew"]),
        (".trueline/seen", ["pull", "gc"]),
    ],
)
def test_a_linked_folder_is_refused_by_those_who_need_it(tmp: Path, folder: str, commands: list[str]) -> None:
    replace_by_link(tmp / "ws" / folder, tmp / "victim")
    for name in commands:
        error = attempt(tmp / "ws", tmp, COMMANDS[name])
        assert error is not None, name
        causes = error.report.errors.values() if name == "pull" else [error]
        for cause in causes:
            assert str(tmp / "ws" / folder) in str(cause), name
            assert isinstance(cause, LinkRefused) or cause.code == "found", name


def test_a_dataset_that_is_a_link_out_is_refused_and_a_link_to_another_dataset_is_that_one(tmp: Path) -> None:
    replace_by_link(tmp / "ws" / "datasets" / "sales", tmp / "victim")
    (tmp / "ws" / "datasets" / "same").symlink_to("copy")
    (tmp / "ws" / "datasets" / "inner").symlink_to("copy/blocks")
    with tl.open(tmp / "ws") as ws:
        for name in ("sales", "inner"):
            with pytest.raises(BadName, match="is a link that leads out"):
                ws[name]
            assert name not in ws
        assert ws["same"].id == ws["copy"].id
        assert ws["same"].chain.store.location == str(tmp / "ws" / "datasets" / "copy")


def test_a_workspace_given_by_a_link_is_the_users_choice(tmp: Path) -> None:
    (tmp / "short").symlink_to("ws")
    with tl.open(tmp / "short") as ws:
        ws["sales"].append(pa.table({"id": [9], "city": ["Genf"]}))
        assert ws.verify().ok


# --- files --------------------------------------------------------------------------


def files_of(ws: Path) -> list[str]:
    names = [str(path.relative_to(ws)) for path in sorted(ws.rglob("*")) if path.is_file()]
    head = "datasets/sales/refs/head"
    one = {
        kind: next(n for n in names if n.startswith(f"datasets/sales/{kind}/"))
        for kind in ("data", "blocks", "checkpoints")
    }
    return [*one.values(), head, "trueline.toml", ".trueline/index/sales.sqlite"]


@pytest.mark.parametrize("number", range(6))
def test_a_file_that_is_a_link_is_neither_read_nor_written(tmp: Path, number: int) -> None:
    place = tmp / "ws" / files_of(tmp / "ws")[number]
    replace_by_link(place, tmp / "victim")
    make_old(tmp / "victim")
    before = seen(tmp / "victim")
    errors = []
    for name, command in COMMANDS.items():
        errors.append(attempt(tmp / "ws", tmp, command))
        assert seen(tmp / "victim") == before, name
    told = [error for error in errors if error is not None and place.name in str(error)]
    assert told
    assert any(isinstance(error, LinkRefused) for error in told)


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_what_sqlite_keeps_beside_an_index_is_checked_as_well(tmp: Path, suffix: str) -> None:
    (tmp / "victim").mkdir()
    (tmp / "victim" / "file").write_bytes(b"mine")
    (tmp / "ws" / ".trueline" / "index" / f"sales.sqlite{suffix}").symlink_to(tmp / "victim" / "file")
    before = seen(tmp / "victim")
    error = attempt(tmp / "ws", tmp, COMMANDS["log"])
    assert isinstance(error, LinkRefused)
    assert error.path.endswith(suffix)
    assert seen(tmp / "victim") == before


@pytest.mark.parametrize("lock", ["gc.lock", "head.lock", "turn.lock"])
def test_a_lock_that_is_a_link_makes_no_file_elsewhere(tmp: Path, lock: str) -> None:
    place = tmp / "ws" / "datasets" / "sales" / "private" / lock
    place.unlink(missing_ok=True)
    (tmp / "victim").mkdir()
    place.symlink_to(tmp / "victim" / "made")
    assert isinstance(attempt(tmp / "ws", tmp, COMMANDS["append"]), LinkRefused)
    assert list((tmp / "victim").iterdir()) == []


def test_hard_links_are_files_like_others(tmp: Path) -> None:
    for path in [path for path in (tmp / "ws").rglob("*") if path.is_file()]:
        os.link(path, tmp / f"second-{path.name}-{path.stat().st_ino}")
    with tl.open(tmp / "ws") as ws:
        ws["sales"].append(pa.table({"id": [9], "city": ["Genf"]}))
        assert ws.verify().ok


# --- what is neither a file nor a folder ----------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("number", range(6))
def test_a_pipe_or_socket_in_the_place_of_a_file_is_refused_without_waiting(
    tmp: Path, number: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp / "ws" / files_of(tmp / "ws")[number]
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    else:
        # The name of a socket may have 107 bytes.
        monkeypatch.chdir(place.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("s")
        Path("s").rename(place.name)
    errors = [attempt(tmp / "ws", tmp, command) for command in COMMANDS.values()]
    assert any(error is not None and place.name in str(error) for error in errors)


# --- reading deletes nothing ------------------------------------------------------------


def names(folder: Path) -> set[str]:
    # SQLite's own: they come and go with a connection.
    return {str(path) for path in folder.rglob("*") if not path.name.endswith(("-wal", "-shm"))}


@pytest.mark.parametrize("name", READING)
def test_a_reading_call_deletes_nothing(tmp: Path, name: str) -> None:
    before = names(tmp / "ws")
    assert attempt(tmp / "ws", tmp, READING[name]) is None
    assert before <= names(tmp / "ws")


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["status"],
        ["log", "sales"],
        ["schema", "sales"],
        ["show", "sales"],
        ["verify"],
        ["gc", "--dry-run"],
        ["doctor"],
        ["config", "list"],
    ],
    ids=lambda words: words[0],
)
def test_a_reading_command_deletes_nothing(tmp: Path, words: list[str], capsys: Any) -> None:
    before = names(tmp / "ws")
    assert main(["-C", str(tmp / "ws"), *words]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err
    assert before <= names(tmp / "ws")


def test_gc_does_clear_what_dead_writers_left_and_nothing_else(tmp: Path) -> None:
    private = tmp / "ws" / "datasets" / "sales" / "private"
    mine = [private / folder / "letter.txt" for folder in ("leases", "staging", "scratch")]
    mine += [tmp / "ws" / ".trueline" / folder / "my notes.json" for folder in ("index", "seen")]
    mine += [
        tmp / "ws" / ".trueline" / "index" / "my notes.sqlite",
        private / "scratch" / "folder" / "letter.txt",
    ]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("dear", encoding="utf-8")
    make_old(private)
    with tl.open(tmp / "ws") as ws:
        swept = ws.gc(older_than=0)
    assert swept.unfinished == ("half",)
    assert "gone" in swept.indexes
    assert all(path.read_text(encoding="utf-8") == "dear" for path in mine)
    left = {path.name for folder in ("leases", "staging", "scratch") for path in (private / folder).iterdir()}
    assert left == {"letter.txt", "folder"}


@pytest.mark.parametrize("foreign", ["private/notes.txt", "private/leases/notes.txt", "blocks/link"])
def test_a_creation_that_died_is_kept_if_something_else_is_in_it(tmp: Path, foreign: str) -> None:
    place = tmp / "ws" / "datasets" / "half" / foreign
    if foreign.endswith("link"):
        place = place.with_name(str(Multihash.of(b"link")))
        (tmp / "letter.txt").write_text("dear", encoding="utf-8")
        place.parent.joinpath("folder").symlink_to(tmp)
    else:
        place.write_text("dear", encoding="utf-8")
    make_old(tmp / "ws" / "datasets" / "half")
    before = names(tmp / "ws" / "datasets" / "half")
    with tl.open(tmp / "ws") as ws:
        assert ws.gc(older_than=0).unfinished == ()
    assert names(tmp / "ws" / "datasets" / "half") == before


# --- a swap in the middle -----------------------------------------------------------------


def swapping(at: int, place: Path, victim: Path) -> WatchedFiles:
    """Files before whose `at`-th operation a folder is replaced by a link."""

    def before(number: int, _name: str, _args: tuple[Any, ...]) -> None:
        if number == at and place.is_dir() and not place.is_symlink():
            place.rename(place.with_name(f"{place.name} before"))
            place.symlink_to(victim)

    return WatchedFiles(before)


@pytest.mark.parametrize(
    "folder",
    ["data", "blocks", "refs", "private", "private/leases", "private/staging", "private/scratch", ""],
)
def test_a_folder_replaced_by_a_link_at_any_operation_is_not_followed(tmp_path: Path, folder: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    spread(victim)
    make_old(victim)
    before = seen(victim)
    at, done = 0, False
    while not done:
        at += 1
        root = tmp_path / f"ws{at}"
        commit(FileStore(root / "ds", durable=False), b"earlier", note="before")
        leave_dead_writer(root / "ds" / "private")
        files = swapping(at, root / "ds" / folder, victim)
        store = FileStore(Inside(root, ("ds",)), files=files, durable=False)
        error: TruelineError | None = None
        try:
            commit(store, b"data", note="swapped")
            with store.scratch() as scratch, scratch.create("rows") as file:
                file.write(b"rows")
            collect(store, list, older_than=0, now=LONG_AGO * 2)
            list(walk(store))
        except TruelineError as raised:
            error = raised
        store.close()
        assert error is None or isinstance(error, CorruptionError), f"operation {at}: {error!r}"
        assert seen(victim) == before, f"operation {at}"
        done = len(files.log) < at
        shutil.rmtree(root)
    assert at > 20


def test_a_task_checks_the_scratch_it_was_handed_again(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    store = FileStore(tmp_path / "ds", durable=False)
    with store.scratch() as scratch:
        with scratch.create("rows") as file:
            file.write(b"rows")
        assert scratch.folder is not None
        sent: FolderScratch = pickle.loads(pickle.dumps(scratch))
        assert sent.open("rows").read() == b"rows"
        place = scratch.folder.path
        place.rename(place.with_name("aside"))
        place.symlink_to(victim)
        (victim / "rows").write_bytes(b"mine")
        for use in (lambda: sent.create("more"), lambda: sent.open("rows")):
            with pytest.raises(LinkRefused, match="scratch"):
                use()
    assert [path.read_bytes() for path in victim.iterdir()] == [b"mine"]


def test_a_file_of_scratch_that_is_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_bytes(b"dear")
    scratch = FolderScratch(tmp_path / "scratch")
    scratch.create("rows").close()
    (tmp_path / "scratch" / "rows").unlink()
    (tmp_path / "scratch" / "rows").symlink_to(tmp_path / "letter.txt")
    with pytest.raises(LinkRefused):
        scratch.open("rows")
    with scratch.create("rows") as file:
        file.write(b"rows")
    assert scratch.open("rows").read() == b"rows"
    assert (tmp_path / "letter.txt").read_bytes() == b"dear"


def test_a_spark_task_writes_no_piece_through_a_link(tmp_path: Path) -> None:
    frames = pytest.importorskip("trueline.spark.frames")
    (tmp_path / "ws").mkdir()
    (tmp_path / "victim").mkdir()
    folder = Inside(tmp_path / "ws", ("scratch", "spool"))
    write = frames.WritePiece(folder, ROWS.schema)
    assert write(0, iter(ROWS.to_batches())).rows == 2
    shutil.rmtree(tmp_path / "ws" / "scratch")
    (tmp_path / "ws" / "scratch").symlink_to(tmp_path / "victim")
    with pytest.raises(LinkRefused, match="scratch"):
        write(0, iter(ROWS.to_batches()))
    assert list((tmp_path / "victim").iterdir()) == []


def test_the_doctor_names_links_and_does_not_follow_them(tmp: Path) -> None:
    def found() -> list[str]:
        return [check.detail for check in examine(tmp / "ws") if check.name == "links"]

    (tmp / "ws" / "datasets" / "same").symlink_to("copy")
    assert found() == []
    place = tmp / "ws" / "datasets" / "sales" / "private" / "scratch"
    replace_by_link(place, tmp / "victim")
    (tmp / "victim" / "inner").symlink_to(tmp)
    assert found() == [f"{place} is a symbolic link"]
    shutil.rmtree(tmp / "ws" / ".trueline")
    (tmp / "ws" / ".trueline").symlink_to(tmp / "victim")
    assert found() == [f"{tmp / 'ws' / '.trueline'} is a symbolic link, and 1 more"]


# --- anywhere -------------------------------------------------------------------------------


def places(ws: Path, chance: random.Random) -> Iterator[Path]:
    """Choose some of what a workspace has, folders as often as files."""
    for _ in range(chance.randint(1, 3)):
        wanted = chance.choice([Path.is_dir, Path.is_file])
        found = [path for path in sorted(ws.rglob("*")) if not path.is_symlink() and wanted(path)]
        yield chance.choice(found)


@pytest.mark.parametrize("seed", range(25))
def test_links_anywhere_lead_no_command_out(tmp: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number, place in enumerate(places(tmp / "ws", chance)):
        replace_by_link(place, tmp / f"victim{number}")
    victims = sorted(tmp.glob("victim*"))
    for victim in victims:
        make_old(victim)
    before = [seen(victim) for victim in victims]
    for name in chance.sample(list(COMMANDS), len(COMMANDS)):
        attempt(tmp / "ws", tmp, COMMANDS[name])
        assert [seen(victim) for victim in victims] == before, name
