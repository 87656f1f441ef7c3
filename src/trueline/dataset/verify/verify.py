"""The data of a chain proven: files side by side, commits whole and in order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from trueline import console
from trueline.chain.block import Block, CommitRecord, commit_record
from trueline.chain.chain import Chain
from trueline.chain.counts import Counts, keep_counts
from trueline.chain.datatypes import Option
from trueline.chain.events import DatasetKind
from trueline.chain.head_state import Tail, follow
from trueline.chain.references import Reference, references
from trueline.chain.schema import fields_of
from trueline.chain.store.store import Folder
from trueline.chain.verify import Problem, ProblemKind, Progress, VerificationReport
from trueline.dataset.counts import counted_rows
from trueline.dataset.definition import SOURCE
from trueline.dataset.derivation import derivation_at
from trueline.dataset.remove.record import Hole, Removals, removals_of
from trueline.dataset.verify.files import (
    RESTORE,
    Checked,
    DataProblem,
    ExpectedRows,
    Subject,
    Task,
    check_file,
)
from trueline.dataset.verify.rows import Expected, differing
from trueline.errors import InputError
from trueline.identity.multihash import Multihash
from trueline.kernel.tasks import InlineTasks, Tasks

# Descriptors in memory at a time; a chain may have millions.
_PAGE: Final = 1024
Item = Task | Problem


def verify_data(
    chain: Chain,
    after: Multihash | None,
    upto: Multihash,
    *,
    tasks: Tasks | None = None,
    progress: Progress | None = None,
) -> VerificationReport:
    """Look at every file that the blocks in (after, upto] name, at the rows in them, and at the commits.

    The blocks themselves are taken as proven. `progress` is called with how many files are done.
    """
    run = tasks if tasks is not None else InlineTasks(workers=min(8, os.cpu_count() or 1))
    walk = _Walk(chain, removals_of(chain), chain.tail_at(after) if after is not None else None)
    pairs = _Pairs(from_start=after is None)
    counting = _Counting(chain)
    tally = _Tally(progress)
    for page in _pages(walk.items(chain.between(after, upto))):
        work = [item for item in page if isinstance(item, Task)]
        # A caller that asks for progress shows it; two bars would draw over each other.
        with console.use(console.SilentConsole()) if progress is not None else nullcontext():
            done = dict(run.map(check_file, work, label="verifying files"))
        numbers = iter(range(len(work)))
        for item in page:
            if isinstance(item, Task):
                checked = done[next(numbers)]
                tally.add(checked)
                tally.problems += pairs.add(item, checked)
                counting.add(item, checked)
            else:
                tally.problems.append(item)
        counting.keep()
    tally.not_checked |= dict.fromkeys(walk.without)
    if upto == chain.head:
        tally.problems += [*walk.ending(), *pairs.ending()]
        if not tally.problems:
            counting.current(upto)
    return tally.report()


def _pages(items: Iterable[Item]) -> Iterator[list[Item]]:
    page: list[Item] = []
    for item in items:
        page.append(item)
        if len(page) >= _PAGE:
            yield page
            page = []
    if page:
        yield page


@dataclass(slots=True)
class _Tally:
    """What was found so far."""

    progress: Progress | None
    files: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    not_checked: dict[str, None] = field(default_factory=dict)

    def add(self, checked: Checked) -> None:
        self.files += 1
        self.bytes += checked.bytes
        self.problems += checked.problems
        self.not_checked |= dict.fromkeys(checked.not_checked)
        if self.progress is not None:
            self.progress(self.files)

    def report(self) -> VerificationReport:
        return VerificationReport(
            objects=self.files,
            bytes=self.bytes,
            problems=tuple(self.problems),
            not_checked=tuple(self.not_checked),
        )


class _Walk:
    """Goes along the blocks, oldest first, and says what has to be looked at."""

    def __init__(self, chain: Chain, removals: Removals, tail: Tail | None) -> None:
        self._store = chain.store
        self._limits = chain.limits
        self._removals = removals
        self._tail = tail
        self._seen: set[Any] = set()
        self._part: tuple[CommitRecord, Block] | None = None
        self.without: list[str] = []

    def items(self, blocks: Iterable[tuple[Multihash, Block]]) -> Iterator[Item]:
        """Yield files to look at, and problems that need no look."""
        first = True
        for _, block in blocks:
            yield from self._in_order(block, first)
            first = False
            try:
                for reference in references(block, self._store, self._seen):
                    yield from self._of(block, reference)
            except InputError as error:
                # A checkpoint that says it is ours but cannot be understood.
                yield _problem(block, error.problem, error.remedy)
            self._tail = follow(self._tail, block)

    def _of(self, block: Block, reference: Reference) -> Iterator[Item]:
        subject = Subject(
            block.hash,
            block.sequence_number,
            reference.folder,
            reference.hash,
            reference.size,
            reference.role,
        )
        data = block.data_event.new_data if block.data_event else None
        is_slice = data is not None and reference.role == "slice"
        if self._removals.is_gone(block, reference):
            # A later block may name the same bytes again, which are then there.
            self._seen.discard((reference.folder, reference.hash))
            hole = self._removals.hole(data) if data is not None and is_slice else None
            if hole is not None:
                yield from self._removed(subject, block, hole)
            return
        if reference.role == "state" and self._is_rebuilt(reference):
            self.without.append(
                f"state {reference.hash.short}: it is not here, and is made again when needed"
            )
            return
        yield Task(self._store, subject, self._rows(block) if is_slice else None, self._limits)

    def _is_rebuilt(self, reference: Reference) -> bool:
        """Say whether a file is not there but follows from the inputs (derive:V17)."""
        if self._tail is None or self._tail.dataset_kind is not DatasetKind.Derivative:
            return False
        return self._store.size(reference.folder, reference.hash) is None

    def _removed(self, subject: Subject, block: Block, hole: Hole) -> Iterator[Item]:
        assert block.data_event
        assert block.data_event.new_data
        interval = block.data_event.new_data.offset_interval
        count = interval.end - interval.start + 1
        yield subject.problem(
            ProblemKind.REMOVED,
            f"lost {hole.rows:,} of {count:,} rows to removal {hole.number}: {hole.reason}",
            count,
            count - hole.rows,
            remedy="nothing to do: they were removed on purpose",
        )
        if hole.replacement is not None:
            kept = replace(
                subject,
                folder=Folder.CHECKPOINTS,
                hash=hole.replacement.hash,
                size=hole.replacement.size,
                role="replacement",
            )
            rows = self._rows(block)
            expected = replace(rows.expected, dense=False)
            yield Task(
                self._store,
                kept,
                replace(rows, expected=expected, logical=None, count=count - hole.rows),
                self._limits,
            )

    def _rows(self, block: Block) -> ExpectedRows:
        """What the block and the definitions in force say of the rows of its slice."""
        tail, event = self._tail, block.data_event
        assert tail
        assert tail.schema
        assert event
        assert event.new_data
        fields = fields_of(tail.schema)
        interval = event.new_data.offset_interval
        names = {column.name for column in fields}
        expected = Expected(
            interval,
            tail.vocab,
            block.system_time,
            tuple(name for name in _key_of(tail) if name in names),
            tuple(column.name for column in fields if not isinstance(column.type, Option)),
        )
        return ExpectedRows(fields, expected, event.new_data.logical_hash, interval.end - interval.start + 1)

    # --- commits of several parts -----------------------------------------------------

    def _in_order(self, block: Block, first: bool) -> Iterator[Problem]:
        """Check that the parts of a commit follow each other."""
        record, before = commit_record(block), self._part
        expected = 1 if before is None else before[0].part + 1
        known = before is not None or not first or self._tail is None
        parts = before[0].parts if before is not None else record.parts
        if known and (record.part, record.parts) != (expected, parts):
            said = f"part {record.part} of {record.parts}"
            wanted = "a commit begins" if before is None else f"part {expected} of {parts} is to follow"
            yield _problem(block, f"it is {said} of a commit, where {wanted}", RESTORE)
        self._part = None if record.is_end else (record, block)

    def ending(self) -> Iterator[Problem]:
        """Say that the last commit is not whole."""
        if self._part is not None:
            record, block = self._part
            what = f"the dataset ends with part {record.part} of a commit of {record.parts}"
            yield _problem(block, what, "append the other parts, or reset to the commit before")


def _key_of(tail: Tail) -> tuple[str, ...]:
    if (derivation := derivation_at(tail)) is not None:
        return derivation.key
    source: Any = tail.push.get(SOURCE) or next(iter(tail.push.values()), None) or tail.polling
    return tuple(getattr(source.merge, "primary_key", ())) if source is not None else ()


def _problem(block: Block, what: str, remedy: str) -> DataProblem:
    return DataProblem(ProblemKind.CORRUPT, what, remedy, block.hash, block.sequence_number)


class _Counting:
    """Counts what commits did that do not say it themselves, while their rows are looked at anyway."""

    def __init__(self, chain: Chain) -> None:
        tail = chain.tail()
        self._chain = chain
        self._wanted = tail is not None and tail.replaces_rows
        self._found: dict[Multihash, Counts] = {}

    def add(self, task: Task, checked: Checked) -> None:
        """Take the next file; one that replaces a slice has fewer rows than there were."""
        if self._wanted and task.subject.role == "slice" and checked.operations and not checked.problems:
            inserts, deletes, _, updates = checked.operations
            self._found[task.subject.block] = Counts(None, inserts, updates, deletes)

    def keep(self) -> None:
        """Put what was counted into the index."""
        if self._found:
            keep_counts(self._chain, self._found)
            self._found = {}

    def current(self, head: Multihash) -> None:
        """Count the current rows, unless the newest commit says how many there are."""
        if self._wanted:
            counted_rows(self._chain, self._chain.tail_at(head))


class _Pairs:
    """Matches halves of change pairs at the ends of neighbouring slices."""

    def __init__(self, *, from_start: bool) -> None:
        self._open: tuple[Task, pa.Table] | None = None
        self._known = from_start

    def add(self, task: Task, checked: Checked) -> Iterator[Problem]:
        """Take the next file in order."""
        if task.rows is None:
            return
        if checked.problems or not checked.has_rows or not task.rows.expected.dense:
            self._open, self._known = None, False
            return
        waiting, self._open = self._open, (task, checked.opens) if checked.opens is not None else None
        known, self._known = self._known, True
        if waiting is None:
            if checked.closes is not None and known:
                yield task.subject.corrupt("begins with a correct-to; no correct-from precedes it", 2, None)
            return
        before, row = waiting
        if checked.closes is None:
            yield before.subject.corrupt("ends with a correct-from; no correct-to follows it", 3, None)
            return
        key = task.rows.expected.key
        rows = pa.concat_tables([row.select(list(key)), checked.closes.select(list(key))])
        other = differing(rows, key, np.array([0]), np.array([1]))
        if other is not None:
            yield task.subject.corrupt(f"corrects one key to another in row 0: {other[1]}", None, other[1])

    def ending(self) -> Iterator[Problem]:
        """Say that a pair was never closed."""
        if self._open is not None:
            yield self._open[0].subject.corrupt("ends with a correct-from; no correct-to follows it", 3, None)
