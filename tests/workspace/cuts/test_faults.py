"""Faults at every durable operation of the log of cuts and of transactions, and processes that race."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress

import pytest

from tests.architecture import ROOT
from tests.chain.histories import dataset_id
from tests.faults import (
    CAN_BE_FULL,
    DURABLE,
    ServerFaults,
    WatchedFiles,
    delaying,
    failing,
    killed,
    server_fault,
    watching,
)
from tests.workspace.cuts.actors import LATE, A, B, Roots, act, objects_at, prepare
from tests.workspace.cuts.lake import offsets
from trueline.errors import LinkRefused, OutcomeUnknown, StorageFull, StoreError
from trueline.workspace.cuts import log as log_module
from trueline.workspace.locations import place_of

_numbers = itertools.count()


@contextmanager
def opened(folder):
    roots = Roots(folder)
    yield roots
    roots.close()


def listed(folder):
    return sorted(path.name for path in folder.iterdir())


def is_locked(path):
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def check(folder, objects) -> tuple[bool, bool]:
    """What holds whatever has happened to the act: nothing torn, nothing lost, everything goes on.

    Returns whether the transaction was passed as a whole, and whether it had to expire.
    """
    with opened(folder) as roots:
        heads = [roots.histories[name].last_offset for name in (A, B)]
        log = roots.log(objects)
        cut = log.record([A, B])
        # A block of code that failed half-way is named; what else was not finished is not shown yet.
        whole = offsets(cut, A, B) in ([0, 0], [1, 1])
        assert whole != bool(cut.broken), "a cut never shows one append of two without saying so"
        late = roots.log(objects, clock=lambda: LATE)
        expired = bool(late.intents.unfinished())
        last = late.record([A, B])
        assert offsets(last, A, B) == heads
        assert bool(last.broken) == (bool(cut.broken) or (expired and heads != [0, 0]))
        found = list(roots.log(objects).cuts())
        assert [each.number for each in found] == list(range(1, last.number + 1))
        for name in (A, B):
            roots.append(name)
        after = late.record([A])
        assert (after.number, after[A].offset) == (last.number + 1, heads[0] + 1)
        # One that had appended nothing is passed by whatever is appended next.
        assert bool(after.broken) == (expired and not last.broken)
        assert late.record([A, B])[B].offset == heads[1] + 1
        assert late.intents.read() == {}
    return offsets(cut, A, B) == [1, 1], expired


# --- files --------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.contract("cut:P2", "cut:P3")
def test_a_transaction_and_a_cut_killed_at_any_operation_on_files(tmp_path):
    template = tmp_path / "ws"
    prepare(template / "roots", place_of(template).cuts())
    deed = "tests.workspace.cuts.actors:deed"
    copies = killed(deed, template, tmp_path / "copies", "transaction", "torn", most=24, at_least=21)
    outcomes = {check(copy / "roots", place_of(copy).cuts()) for copy in copies}
    assert len(copies) > 20
    # Before the intent, while it is open, after it was closed.
    assert outcomes == {(False, False), (False, True), (True, False)}


@pytest.mark.sampled
def test_a_cut_that_folds_killed_at_any_operation_on_files(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "FOLD", 10)
    template = tmp_path / "ws"
    objects = place_of(template).cuts()
    with opened(template / "roots") as roots:
        log = roots.log(objects)
        for _ in range(29):
            roots.append(A)
            log.record([A])
        before = [cut.to_bytes() for cut in log.cuts()]
    shutil.copytree(template, tmp_path / "whole")
    deed = "tests.workspace.cuts.actors:deed"
    copies = killed(deed, template, tmp_path / "copies", "fold", "whole", most=24, at_least=16)
    assert len(copies) > 15
    steps = set()
    for copy in copies:
        objects = place_of(copy).cuts()
        steps.add((len(objects.names("cut")), tuple(objects.names("folded"))))
        with opened(copy / "roots") as roots:
            log = roots.log(objects)
            found = [cut.to_bytes() for cut in log.cuts()]
            assert found[:29] == before
            assert len(found) in (29, 30)
            roots.append(A)
            assert log.record([A]).number == len(found) + 1
            log.fold()
            assert [cut.to_bytes() for cut in roots.log(objects).cuts()][:29] == before
            if len(found) == 30:
                assert objects.names("folded") == ["1", "11"]
    assert len(steps) > 5, "before, while and after it was folded"


def test_a_disk_that_is_full_at_any_operation(tmp_path):
    template = tmp_path / "ws"
    prepare(template / "roots", place_of(template).cuts())
    kinds = set()
    for at in itertools.count(1):
        copy = tmp_path / str(at)
        shutil.copytree(template, copy)
        files = WatchedFiles()
        with watching(files):
            doing = act(place_of(copy).cuts(), copy / "roots")
            fault = failing(at, errno.ENOSPC, CAN_BE_FULL)
            files.before = fault.before
            try:
                doing()
            except (StorageFull, OutcomeUnknown) as error:
                kinds.add((type(error), bool(error.remedy)))
            files.before = None
        check(copy / "roots", place_of(copy).cuts())
        shutil.rmtree(copy)
        if not fault.failed:
            break
    assert at > 20
    assert (StorageFull, True) in kinds
    assert all(remedy for _, remedy in kinds)


def test_somebody_else_records_between_any_two_operations(tmp_path):
    template = tmp_path / "ws"
    prepare(template / "roots", place_of(template).cuts())
    for at in itertools.count(1):
        copy = tmp_path / str(at)
        shutil.copytree(template, copy)
        objects = place_of(copy).cuts()

        def other(copy=copy, objects=objects):
            if is_locked(copy / "datasets/.cuts/transactions.lock"):
                return  # it would wait for the end of the operation
            with opened(copy / "roots") as roots:
                cut = roots.log(objects).record([A, B])
                assert offsets(cut, A, B) in ([0, 0], [1, 1])

        doing = act(objects, copy / "roots")
        files = delaying(at, other)
        with watching(files):
            doing()
        with opened(copy / "roots") as roots:
            assert offsets(roots.log(objects).record([A, B]), A, B) == [1, 1]
            assert [offsets(cut, A, B) for cut in roots.log(objects).cuts()] == [[0, 0], [1, 1]]
        shutil.rmtree(copy)
        if not files.failed:
            break
    assert at > 10


def test_the_harness_numbers_what_changes_the_disk(tmp_path):
    files = WatchedFiles()
    with watching(files):
        place_of(tmp_path / "ws").cuts().put_new("cut/1", b"x")
    assert [name for name, _ in files.log if name in DURABLE and name != "make_folder"] == [
        *["fsync"] * 3,  # the folders that were made, each in the one above
        "create",
        "write",
        "fsync",
        "link",
        "unlink",
        "fsync",
    ]


def test_a_cut_that_the_disk_did_not_confirm_is_unknown_and_found_again(tmp_path):
    objects = place_of(tmp_path / "ws").cuts()
    prepare(tmp_path / "roots", objects)
    with opened(tmp_path / "roots") as roots:
        roots.append(A)
        files = WatchedFiles()

        def before(_number, name, _args):
            if name == "fsync" and files.counts["link"]:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        log = roots.log(objects)
        with watching(files), pytest.raises(OutcomeUnknown) as caught:
            files.before = before
            log.record([A])
        assert caught.value.path.endswith("cut/2")
        assert log.record([A]).number == 2


def test_a_file_system_without_links_gives_each_number_once(tmp_path):
    class NoLinks(WatchedFiles):
        def link(self, *_args):
            raise OSError(errno.EPERM, "Operation not permitted")

    objects = place_of(tmp_path / "ws").cuts()
    with watching(NoLinks()):
        assert objects.put_new("cut/1", b"first")
        assert not objects.put_new("cut/1", b"second")
    assert objects.read("cut/1").raw == b"first"
    assert listed(tmp_path / "ws/datasets/.cuts/cut") == [".lock", "1"]


def test_a_link_in_the_place_of_the_log_is_not_followed(tmp_path):
    objects = place_of(tmp_path / "ws").cuts()
    prepare(tmp_path / "roots", objects)
    home = tmp_path / "ws/datasets/.cuts"
    (tmp_path / "elsewhere").mkdir()
    for name in ("cut", "cut/2", "transactions"):
        shutil.copytree(home, tmp_path / "kept", symlinks=True)
        if (home / name).is_dir():
            shutil.rmtree(home / name)
        (home / name).unlink(missing_ok=True)
        (home / name).symlink_to(tmp_path / "elsewhere")
        with opened(tmp_path / "roots") as roots:
            roots.append(A)
            with pytest.raises(LinkRefused):
                roots.log(objects).record([A])
        assert listed(tmp_path / "elsewhere") == []
        shutil.rmtree(home)
        (tmp_path / "kept").rename(home)


def test_what_died_while_it_put_is_tidied_after_a_day(tmp_path):
    objects = place_of(tmp_path / "ws").cuts()
    objects.put_new("cut/1", b"x")
    folder = tmp_path / "ws/datasets/.cuts/cut"
    for name in (".2.123.0123abcd", ".3.123.0123abcd", ".keep"):
        (folder / name).write_bytes(b"")
        if name != ".3.123.0123abcd":
            os.utime(folder / name, (1, 1))
    assert objects.names("cut") == ["1"]
    objects.tidy("cut")
    assert listed(folder) == [".3.123.0123abcd", ".keep", "1"]


# --- an object store ------------------------------------------------------------------------


@pytest.fixture
def place(s3):
    """Where a log is on the server, for this process and others; nothing is sent twice by the library."""
    options = s3.options | {"retry_config": {"max_retries": 0}}
    return f"s3://bucket/faults-{next(_numbers)}|{json.dumps(options)}"


@pytest.mark.contract("cut:P2", "cut:P3")
@pytest.mark.parametrize("how", ["refused", "busy", "full", "dropped", "lost"])
def test_any_request_to_an_object_store_that_fails(tmp_path, s3, place, how):
    template = tmp_path / "template"
    for at in itertools.count(1):
        objects = objects_at(place.replace("/faults", f"/faults-{at}"))
        if not template.exists():
            prepare(template, objects)
            first = objects
        else:
            objects.put_new("cut/1", first.read("cut/1").raw)
        folder = tmp_path / str(at)
        shutil.copytree(template, folder)
        doing = act(objects, folder)
        # What was done without an answer is found to be done.
        errors = () if how == "lost" else (StoreError, OutcomeUnknown)
        with server_fault(s3, ServerFaults(at, how)) as fault, suppress(*errors):
            doing()
        check(folder, objects)
        if not fault.failed:
            break
    assert at >= 4, "the intent, its end, the cut"


@pytest.mark.contract("cut:P2", "cut:P3")
def test_a_process_killed_at_any_request_to_an_object_store(tmp_path, s3, place):
    command = [sys.executable, "-m", "tests.workspace.cuts.actors", "serve"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    outcomes = set()
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as actor:
        try:
            for how, at in itertools.product(("dropped", "lost"), range(1, 6)):
                where = place.replace("/faults", f"/{how}-{at}")
                folder = tmp_path / f"{how}-{at}"
                prepare(folder, objects_at(where))
                actor.stdin.write(f"{where} {folder}\n".encode())
                actor.stdin.flush()
                child = int(actor.stdout.readline())
                with server_fault(s3, ServerFaults(at, how, kill=child)) as fault:
                    actor.stdin.write(b"\n")
                    actor.stdin.flush()
                    said = actor.stdout.readline()
                assert said == (b"killed\n" if fault.failed else b"0\n")
                outcomes.add((fault.failed, *check(folder, objects_at(where))))
        finally:
            with suppress(BrokenPipeError):
                actor.stdin.close()
    assert {(True, False, False), (True, False, True), (True, True, False)} <= outcomes


# --- races ------------------------------------------------------------------------------------


@pytest.mark.contract("cut:P3")
@pytest.mark.parametrize(("where", "times"), [("files", 300), ("s3", 60)])
def test_three_processes_that_race_are_given_each_number_once(tmp_path, s3, where, times):
    at = str(tmp_path / "ws")
    if where == "s3":
        at = f"s3://bucket/race-{next(_numbers)}|{json.dumps(s3.options)}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "tests.workspace.cuts.actors", "race", at, str(tmp_path / "roots")]
    shared = Roots(tmp_path / "roots", ("shared",))
    shared.append(dataset_id("shared"))
    shared.close()
    racing = [
        subprocess.Popen(
            [*command, who, str(times)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        for who in "xyz"
    ]
    given = [json.loads(process.communicate()[0]) for process in racing]
    assert [process.returncode for process in racing] == [0, 0, 0]
    assert [len(numbers) for numbers in given] == [times] * 3
    assert sorted(itertools.chain(*given)) == list(range(1, 3 * times + 1))
    log = Roots(tmp_path / "roots", ("x",)).log(objects_at(at))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_module, "FOLD", 50)
        cuts = list(log.cuts())
        assert len(objects_at(at).names("cut")) <= 100 + 3, "it folds while they race"
    assert [cut.number for cut in cuts] == list(range(1, 3 * times + 1))
    for before, after in itertools.pairwise(cuts):
        assert all(after[name].offset >= before[name].offset for name in before.positions)
        assert after != before
        assert after.time >= before.time
        assert after.reset == frozenset()
