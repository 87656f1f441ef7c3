"""An interrupted run goes on where it was: what a journal holds, what it survives, what it refuses."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from collections import Counter, deque
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.architecture import ROOT
from tests.examples import examples
from tests.run.sequential import random_run, sequential
from trueline.errors import (
    CorruptionError,
    InputError,
    JournalBusy,
    JournalDamaged,
    RunFailed,
    StoreError,
)
from trueline.run import ERASED, Inline, Journal, Processes, Run, Step, Threads
from trueline.run.fingerprint import fingerprint
from trueline.run.json_values import digest_of, text_of, value_of

# Each call is written down before it is made; the process kills itself in the middle of one.
PREPARATION = """
import os, signal, sys
from trueline.run import Run, Step, Threads

journal, calls, deadly = sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT), int(sys.argv[3])
made = 0

def step(name, change):
    def work(key, value):
        global made
        made += 1
        if made == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(calls, f"{name} {key} {value}\\n".encode())
        return f"{value}{name}" if change(key) else value
    return Step(map=work, name=name, batch_size=1)

changes = {"p": lambda key: key % 3 == 0, "q": lambda key: False, "r": lambda key: key % 2 == 0}
steps = [step(name, change) for name, change in changes.items()]
run = Run(steps, journal=journal, executor=Threads(1))
print(run.execute({key: "v" for key in range(12)}))
print([(each.calls, each.reused) for each in run.report.steps])
"""


def prepare(folder: Path, calls: str, deadly: int) -> subprocess.CompletedProcess[str]:
    program = folder / "preparation.py"
    program.write_text(PREPARATION, encoding="utf-8")
    command = [sys.executable, str(program), str(folder / "run.journal"), str(folder / calls), str(deadly)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("deadly", [2, 20, 35])
def test_a_killed_run_goes_on_without_repeating_what_it_finished(tmp_path, deadly):
    assert prepare(tmp_path, "first", deadly).returncode == -signal.SIGKILL
    done = prepare(tmp_path, "second", 0)
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "first").read_text(encoding="utf-8").splitlines()
    second = (tmp_path / "second").read_text(encoding="utf-8").splitlines()
    assert len(first) == deadly - 1, "one thread, one key at a time: all but the deadly call had ended"
    assert set(first) & set(second) == set()
    assert len(first) + len(second) == 36, "twelve keys, three steps, one thread: nothing is thrown away"
    found = {key: "v" + "p" * (key % 3 == 0) + "r" * (key % 2 == 0) for key in range(12)}
    assert done.stdout.splitlines()[0] == str(found)


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_a_run_with_a_journal_gives_what_the_steps_give_one_after_another(tmp_path, first):
    for seed in range(first, first + 100):
        steps, inputs = random_run(seed)
        for turn in range(2):
            executor = Inline(seed + turn, workers=1 + seed % 5)
            run = Run(steps, executor=executor, journal=tmp_path / str(seed))
            assert run.execute(inputs) == sequential(steps, inputs), f"seed {seed}, turn {turn}"


def test_a_run_that_failed_goes_on_when_the_step_is_mended(tmp_path):
    calls: Counter[str] = Counter()

    def clean(key, value):
        calls[f"clean {key}"] += 1
        return value.strip()

    def number(key, value):
        return int(value)

    def number_mended(key, value):
        return int(value.replace(",", ""))

    inputs = {"a": " 1 ", "b": " 2,000"}
    with pytest.raises(RunFailed):
        Run([Step(map=clean), Step(map=number, eager=False)], journal=tmp_path / "j", workers=1).execute(
            inputs
        )
    run = Run([Step(map=clean), Step(map=number_mended, eager=False)], journal=tmp_path / "j", workers=1)
    assert run.execute(inputs) == {"a": 1, "b": 2000}
    assert calls == {"clean a": 1, "clean b": 1}
    assert [(step.calls, step.reused) for step in run.report.steps] == [(0, 2), (2, 0)]


def test_only_values_that_differ_are_worked_on_again(tmp_path):
    steps = [Step(map=lambda key, value: value + 1, name="add")]
    Run(steps, journal=tmp_path / "j").execute({"a": 1, "b": 2, "c": 3})
    run = Run(steps, journal=tmp_path / "j")
    assert run.execute({"a": 1, "b": 7, "d": 3}) == {"a": 2, "b": 8, "d": 4}
    assert (run.report.steps[0].calls, run.report.steps[0].reused) == (2, 1)
    assert "from the journal" in str(run.report)


def test_a_batch_that_writes_as_one_is_known_as_one(tmp_path):
    calls: deque[list[tuple[str, int]]] = deque()

    def total(items):
        calls.append(sorted(items))
        yield None, "total", sum(value for _, value in items)

    steps = [Step(process=total, eager=False)]
    expected = {"a": 1, "b": 2, "total": 3}
    for _ in range(2):
        assert Run(steps, journal=tmp_path / "j").execute({"a": 1, "b": 2}) == expected
    assert list(calls) == [[("a", 1), ("b", 2)]]
    assert Run(steps, journal=tmp_path / "j").execute({"a": 1, "b": 3})["total"] == 4
    assert len(calls) == 2


def test_a_failure_is_not_written_down(tmp_path):
    there = tmp_path / "there"

    def work(key, value):
        return value + int(there.read_text(encoding="utf-8"))

    steps = [Step(map=work, on_error="skip_key")]
    first = Run(steps, journal=tmp_path / "j")
    assert first.execute({"a": 1}) == {}
    assert [failure.key for failure in first.failures] == ["a"]
    there.write_text("1", encoding="utf-8")
    assert Run(steps, journal=tmp_path / "j").execute({"a": 1}) == {"a": 2}


class PassesOver(Inline):
    """Learns that a key of the batch is of no use, and does not work on it."""

    def submit(self, step, attempt, items):
        attempt.token.supersede({"b"})
        super().submit(step, attempt, items)


def test_a_key_that_was_passed_over_is_not_written_down(tmp_path):
    steps = [Step(map=add(1), batch_size=2)]
    Run(steps, executor=PassesOver(), journal=tmp_path / "j").execute({"a": 1, "b": 2})
    assert [entry.key for entry in Journal(tmp_path / "j").entries()] == ["a"]


def test_processes_keep_a_journal_too(tmp_path):
    steps = [Step(map=pow, name="power")]
    for calls in (2, 0):
        run = Run(steps, executor=Processes(1), journal=tmp_path / "j")
        assert run.execute({2: 5, 3: 2}) == {2: 32, 3: 9}
        assert run.report.steps[0].calls == calls


def test_a_journal_says_run_step_key_generations_and_digests(tmp_path):
    steps = [
        Step(map=lambda key, value: value + 1, name="add"),
        Step(map=lambda key, value: value, name="same"),
    ]
    Run(steps, journal=tmp_path / "j", executor=Inline()).execute({"a": 1})
    journal = Journal(tmp_path / "j").read()
    (session,) = journal.sessions
    add, same = journal.entries()
    assert (add.step, add.key, add.gens) == (0, "a", (0, 0))
    assert (add.given, add.out) == (digest_of("1"), digest_of("2"))
    assert (same.step, same.gens, same.given, same.out) == (1, (1, 0), digest_of("2"), digest_of("2"))
    assert {add.run, same.run} == {session.run}
    assert (session.steps, session.finished, session.changed, session.ended) == (
        ("add", "same"),
        [1, 1],
        [1, 0],
        True,
    )


# --- what it survives ---------------------------------------------------------


def plus_one() -> list[Step]:
    return [Step(map=lambda key, value: value + 1)]


def written(path: Path) -> bytes:
    Run(plus_one(), journal=path).execute({"a": 1, "b": 2})
    return path.read_bytes()


def test_a_run_that_has_ended_leaves_one_file(tmp_path):
    written(tmp_path / "j")
    assert [path.name for path in tmp_path.iterdir()] == ["j"]


def test_wherever_the_log_of_a_killed_run_is_torn_whole_batches_before_it_count(tmp_path):
    """The log is what a process that dies tears: of every prefix of it whole transactions are taken."""
    assert prepare(tmp_path, "first", 20).returncode == -signal.SIGKILL
    file, log = (tmp_path / name for name in ("run.journal", "run.journal-wal"))
    whole, frames = file.read_bytes(), log.read_bytes()
    counts = []
    for cut in (*range(0, len(frames), 509), len(frames)):
        file.write_bytes(whole)
        log.write_bytes(frames[:cut])
        counts.append(len(list(Journal(file).entries())))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 19)
    assert len(set(counts)) > 10


def test_a_changed_byte_is_refused_or_makes_no_difference(tmp_path):
    """Whichever byte of the file is damaged: no run gives a wrong result, no error is of another kind."""
    path = tmp_path / "j"
    whole = written(path)
    found = Counter()
    places = [place for place in range(len(whole)) if whole[place]][::3]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert Run(plus_one(), journal=path).execute({"a": 1, "b": 2}) == {"a": 2, "b": 3}
            found["worked"] += 1
        except (CorruptionError, InputError, StoreError) as error:
            found[type(error).__name__] += 1
        for rest in tmp_path.glob("j-*"):
            rest.unlink()
    assert found["JournalDamaged"], found


def test_an_entry_that_is_not_what_was_written_is_refused(tmp_path):
    path = tmp_path / "j"
    written(path)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE entry SET made = '7' WHERE key = '\"a\"'")
    steps = plus_one()
    with pytest.raises(JournalDamaged, match="entry 1 cannot be read: its checksum differs") as raised:
        Run(steps, journal=path).execute({"a": 1, "b": 2})
    assert isinstance(raised.value, CorruptionError)
    assert raised.value.place == 1
    with pytest.raises(JournalDamaged, match="checksum"):
        list(Journal(path).entries())


def test_values_are_never_all_read(tmp_path):
    """A journal of a hundred million bytes is opened, used and looked at within a few million."""
    path = tmp_path / "j"
    steps = [Step(map=lambda key, value: "x" * 1_000_000, name="long", batch_size=1)]
    Run(steps, 1, journal=path).execute(dict.fromkeys(range(100), 0))
    tracemalloc.start()
    try:
        run = Run(steps, 1, journal=path)
        assert len(run.execute({1: 0, 2: 1})) == 2
        assert run.report.steps[0].reused == 1
        assert Journal(path).read().sessions[0].finished == [100]
        assert sum(1 for _ in Journal(path).entries()) == 101
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_one_run_writes_a_journal_at_a_time(tmp_path):
    first, second = Journal(tmp_path / "j"), Journal(tmp_path / "j")
    first.open([])
    try:
        with pytest.raises(JournalBusy):
            second.open([])
    finally:
        first.close()
    second.open([])
    second.close()


def test_a_journal_can_be_looked_at_by_several_at_once(tmp_path):
    written(tmp_path / "j")
    first = Journal(tmp_path / "j").entries()
    assert next(first).key == "a"
    assert Journal(tmp_path / "j").read().sessions[0].finished == [2]
    with pytest.raises(JournalBusy):
        Run(plus_one(), journal=tmp_path / "j").execute({"a": 1})
    assert next(first).key == "b"
    first.close()
    Run(plus_one(), journal=tmp_path / "j").execute({"a": 1})


def test_a_long_log_is_copied_into_the_file_while_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("trueline.run.journal_file.LONG", 100_000)
    seen = []

    def work(key, value):
        seen.append(((tmp_path / "j").stat().st_size, (tmp_path / "j-wal").stat().st_size))
        return "x" * 10_000

    Run([Step(map=work, batch_size=1)], 1, journal=tmp_path / "j").execute(dict.fromkeys(range(100), 0))
    assert max(log for _, log in seen) < 300_000
    assert max(file for file, _ in seen) > 500_000
    made = digest_of(text_of("x" * 10_000))
    assert [entry.out for entry in Journal(tmp_path / "j").entries()] == [made] * 100


def test_a_journal_that_is_being_written_is_not_looked_at(tmp_path):
    first = Journal(tmp_path / "j")
    first.open([])
    try:
        with pytest.raises(JournalBusy):
            Journal(tmp_path / "j").read()
    finally:
        first.close()
    assert len(Journal(tmp_path / "j").read().sessions) == 1


def test_a_journal_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be written"):
        Run([], journal=tmp_path / "file" / "j").execute({})


FULL = """
import resource, sys
from tests.run.test_journal import long_run
from trueline.errors import StoreError
path, limit = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    long_run(path)
except StoreError as error:
    print(error.problem)
"""


def long_run(path):
    """A hundred keys, twenty to a batch, each to some 400 bytes of the journal."""
    run = Run([Step(map=lambda key, value: "x" * 300, name="long", batch_size=20)], 1, journal=path)
    return run.execute({str(number): "" for number in range(100)}), run.report.steps[0]


# The disk is full: before there are tables, in the first batches, when the log is copied into the file.
@pytest.mark.parametrize("room", [1_000, 30_000, 50_000, 80_000])
def test_when_the_disk_is_full_what_is_in_the_journal_stays_good(tmp_path, room):
    path = tmp_path / "j"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(room)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert "cannot be written: " in done.stdout
    kept = sum(1 for _ in Journal(path).entries())
    assert kept % 20 == 0, "whole batches"
    assert (kept > 0) == (room > 1_000 + 30_000)
    found, step = long_run(path)
    assert set(found.values()) == {"x" * 300}
    assert (step.reused, step.calls) == (kept, 100 - kept)


def test_two_processes_do_not_write_one_journal(tmp_path):
    script = "import sys; from tests.run.test_journal import long_run; long_run(sys.argv[1])"
    first = Journal(tmp_path / "j")
    first.open([])
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "j")], capture_output=True, text=True, cwd=ROOT
        )
    finally:
        first.close()
    assert "JournalBusy" in done.stderr


# --- names that have changed --------------------------------------------------


def moved(name: str, module: str) -> Step:
    """A step of a class that is in a module of this name."""
    kind = type("Mask", (Step,), {"map": lambda self, key, value: value + 1, "__module__": module})
    return kind(name=name)


def test_a_journal_says_which_names_it_holds_do_not_match_any_more(tmp_path):
    Run([moved("mask", "shop.masking")], journal=tmp_path / "j").execute({"a": 1})
    run = Run([moved("mask", "shop.privacy")], journal=tmp_path / "j")
    assert run.execute({"a": 1}) == {"a": 2}
    (note,) = run.report.notes
    assert "step 'mask'" in note
    assert "work of shop.masking.Mask" in note
    assert "now shop.privacy.Mask" in note
    assert note in str(run.report)
    assert "shop.masking.Mask" in run.report._repr_html_()
    again = Run([moved("mask", "shop.privacy")], journal=tmp_path / "j")
    again.execute({"a": 1})
    assert again.report.notes == (), "the journal knows the step by its new name"


def test_a_step_whose_code_has_changed_is_not_noted(tmp_path):
    Run([Step(map=add(1), name="add")], journal=tmp_path / "j").execute({"a": 1})
    run = Run([Step(map=add(2), name="add")], journal=tmp_path / "j")
    assert run.execute({"a": 1}) == {"a": 3}
    assert run.report.notes == ()


def test_names_in_a_journal_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    Run([moved("mask", "trap")], journal=tmp_path / "j").execute({"a": 1})
    run = Run([moved("mask", "elsewhere")], journal=tmp_path / "j")
    run.execute({"a": 1})
    assert "trap.Mask" in run.report.notes[0]
    assert "trap" not in sys.modules


# --- what it can hold ---------------------------------------------------------

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=8,
)


@given(plain)
@settings(max_examples=examples(100), deadline=None)
def test_a_plain_value_is_read_as_it_was_written(value):
    again = value_of(text_of(value))
    assert again == value
    assert type(again) is type(value)
    assert text_of(again) == text_of(value)


@pytest.mark.parametrize(
    "value",
    [
        ERASED,
        datetime(2026, 11, 16, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Zurich"), fold=1),
        datetime(2026, 10, 25, 2, 30, fold=1),
        time(2, 30, tzinfo=ZoneInfo("Europe/Zurich")),
        time(2, 30, tzinfo=UTC, fold=1),
        date(2026, 11, 16),
        timedelta(days=-1, microseconds=3),
        Decimal("1.10"),
        UUID(int=7),
        {3, 1, 2},
        frozenset({"a", "b"}),
        Path("a") / "b",
        {"$tuple": [1]},
        {(1, "x"): b""},
    ],
)
def test_values_of_these_kinds_are_plain(value):
    assert value_of(text_of(value)) == value
    if isinstance(value, datetime | time):
        assert repr(value_of(text_of(value))) == repr(value)


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1, 1.0), ("1", 1), ((1,), [1]), (None, ERASED), (b"a", "a")]
)
def test_values_that_differ_have_texts_that_differ(one, other):
    assert text_of(one) != text_of(other)


class Reading:
    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reading) and other.number == self.number

    def __hash__(self) -> int:
        return self.number


def test_a_value_that_is_not_plain_ends_the_run_and_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="Reading") as raised:
        Run([Step(map=lambda key, value: Reading(value))], journal=tmp_path / "j").execute({"a": 1})
    assert raised.value.code == "NotPlain"
    assert "encode=" in raised.value.remedy


def test_values_of_ones_own_are_kept_with_encode_and_decode(tmp_path):
    def kept() -> Journal:
        return Journal(tmp_path / "j", encode=lambda each: each.number, decode=Reading)

    steps = [Step(map=lambda key, value: ERASED if key == "b" else Reading(value.number + 1))]
    inputs = {"a": Reading(1), "b": Reading(2)}
    for calls in (2, 0):
        run = Run(steps, journal=kept())
        assert run.execute(inputs) == {"a": Reading(2)}
        assert run.report.steps[0].calls == calls
    with pytest.raises(InputError, match="only one of"):
        Journal(tmp_path / "j", encode=str)


# --- when a step is another ---------------------------------------------------


def add(number):
    return lambda key, value: value + number


class Scaled(Step):
    factor = 2

    def map(self, key, value):
        return self.scaled(value)

    def scaled(self, value):
        return value * self.factor


class ScaledOtherwise(Scaled):
    def scaled(self, value):
        return value * self.factor + 1


def versioned(version):
    step = Step(map=add(1))
    step.version = version
    return step


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Step(map=lambda key, value: value), Step(map=lambda key, value: None)),
        (Step(map=lambda key, value: value + 1), Step(map=lambda key, value: value + 2)),
        (Step(map=add(1)), Step(map=add(2))),
        (Step(map=lambda key, value, by=1: value + by), Step(map=lambda key, value, by=2: value + by)),
        (Scaled(), ScaledOtherwise()),
        (Step(map=add(1), name="x"), Step(map=add(1), name="y")),
        (versioned(1), versioned(2)),
    ],
)
def test_a_step_that_does_something_else_is_another(one, other):
    assert fingerprint(one, 0) != fingerprint(other, 0)


def test_a_step_is_the_same_in_another_process_whatever_the_hash_seed():
    code = (
        "from trueline.run import Step; from trueline.run.fingerprint import fingerprint\n"
        "print(fingerprint(Step(map=lambda key, value: value in {'a', 'b', 'c', 'd'}), 3))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_a_step_in_another_place_is_another():
    step = Step(map=add(1))
    assert fingerprint(step, 0) != fingerprint(step, 1)


def test_work_that_was_thrown_away_is_of_use_when_it_comes_again(tmp_path):
    """What came of a value holds for that value, wanted at the time or not."""
    steps = [
        Step(map=lambda key, value: value + 1, batch_size=1),
        Step(map=lambda key, value: -value, batch_size=1),
    ]
    calls = 0
    for seed in range(20):
        Run(steps, executor=Inline(seed, workers=3), journal=tmp_path / "j").execute({"a": 1, "b": 2})
        run = Run(steps, executor=Threads(3), journal=tmp_path / "j")
        assert run.execute({"a": 1, "b": 2}) == {"a": -2, "b": -3}
        calls += sum(step.calls for step in run.report.steps)
    assert calls <= 2, "at most the two first values ahead, which a first schedule need not have seen"
