"""Proof by replay: every commit of a derived dataset again, from its recorded inputs and definition.

What is replayed, by how many workers, and what was found; `replay_commit` replays one commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal

from trueline import console
from trueline.chain.verify import Problem, Progress, VerificationReport
from trueline.dataset.derivation import derivation_at
from trueline.dataset.remove.record import removals_of
from trueline.dataset.verify.replay import DerivedCommit, derived_commits
from trueline.identity.multihash import Multihash
from trueline.workspace.derive.replay_commit import NotReplayed, Replaying, follows_by_increment, keeps_rows
from trueline.workspace.pull.watched import WatchedConsole

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

Replay = bool | Literal["head"]
HEAD: Final = "head"
# An interval begins by reading all events before it, so that short ones are not worth it.
_COMMITS_OF_AN_INTERVAL: Final = 16
# Fewer commits are sooner evaluated whole than by increments, whose last is evaluated whole beside.
_WORTH_INCREMENTS: Final = 4
# Seconds after which it is looked whether the replay was interrupted.
_LOOK: Final = 0.5


@dataclass(frozen=True, slots=True)
class ReplayEstimate:
    """How much a replay evaluates: commits, and the records of the inputs that all of them read together.

    A definition that is recomputed reads its inputs from their beginning for each commit, so that the records
    grow with the square of history; `head` are those that `replay="head"` would read.

    >>> str(ReplayEstimate(120, 4_300_000, 70_000))
    'replay evaluates 120 commits over 4,300,000 input records (the newest alone: 70,000)'
    """

    commits: int = 0
    records: int = 0
    head: int = 0

    def __str__(self) -> str:
        many = "commit" if self.commits == 1 else "commits"
        said = f"replay evaluates {self.commits:,} {many} over {self.records:,} input records"
        return said if self.records == self.head else f"{said} (the newest alone: {self.head:,})"

    def __add__(self, other: ReplayEstimate) -> ReplayEstimate:
        return ReplayEstimate(
            self.commits + other.commits, self.records + other.records, self.head + other.head
        )


@dataclass(frozen=True, slots=True)
class ReplayPart:
    """What one worker replays: some commits of one dataset that follow each other, or its head."""

    dataset: Dataset
    found: tuple[DerivedCommit, ...]
    head_only: bool = False

    @property
    def estimate(self) -> ReplayEstimate:
        """How much there is to evaluate."""
        sizes = [
            sum(at.offset + 1 for at in each.positions.values() if at.offset is not None)
            for each in self.found
        ]
        newest = sizes[-1:] if sizes else []
        taken = newest if self.head_only else sizes
        read = sum(taken)
        if self.by_increment:
            # All of them for the first commit and for the last, what is new for those between.
            read = sizes[0] + max(0, sizes[-1] - sizes[0]) + sizes[-1]
        return ReplayEstimate(len(taken), read, sum(newest))

    @property
    def by_increment(self) -> bool:
        """Whether commits are replayed by the increment, as far as the newest definition says."""
        tail = self.dataset.chain.tail()
        derivation = None if tail is None else derivation_at(tail)
        enough = len(self.found) >= _WORTH_INCREMENTS and not self.head_only
        return enough and derivation is not None and follows_by_increment(derivation)


def replay_datasets(
    workspace: Workspace,
    datasets: Sequence[Dataset],
    mode: Replay,
    *,
    after: Multihash | None = None,
    upto: Multihash | None = None,
    progress: Progress | None = None,
    workers: int = 1,
) -> VerificationReport:
    """Replay the derived ones among some datasets; `after` and `upto` are for one of them.

    `workers` intervals are replayed side by side. Whoever interrupts it sees how far each dataset came.
    """
    report = VerificationReport()
    parts: list[ReplayPart] = []
    for dataset in datasets:
        why = _not_replayed(workspace, dataset)
        if why is not None:
            report += VerificationReport(not_checked=(f"replay of {dataset.name}: {why}",) if why else ())
            continue
        found = list(derived_commits(dataset.chain, after, dataset.head if upto is None else upto))
        found, why = _replayable(workspace, dataset, found, mode)
        report += VerificationReport(not_checked=(f"replay of {dataset.name}: {why}",) if why else ())
        parts += _parts(dataset, found, mode, workers)
    if not parts:
        return report
    estimate = sum((part.estimate for part in parts), ReplayEstimate())
    console.current().say(str(estimate))
    return report + _replay_parts(workspace, parts, progress, workers)


def _replayable(
    workspace: Workspace, dataset: Dataset, found: list[DerivedCommit], mode: Replay
) -> tuple[list[DerivedCommit], str]:
    """Return the commits that can be replayed, and why others cannot, or nothing.

    What a commit took before records of an input were removed is not there any more; one that took the
    removal too was made from what is left.
    """
    found = found[-1:] if mode == HEAD else found
    names, able = set[str](), list[DerivedCommit]()
    inputs = _lost_records(workspace, dataset)
    for commit in found:
        before = [each.name for each in inputs if _took_before_removal(each, commit)]
        names.update(before)
        able += [] if before else [commit]
    if names:
        many = f"{len(found) - len(able):,} of its commits were" if able else "it was"
        return able, f"{many} computed before records were removed from {', '.join(sorted(names))}"
    if mode == HEAD and any(keeps_rows(dataset.chain, dataset.chain.tail_at(each.before)) for each in able):
        return [], "rows from before its definition stay; replay=True replays its commits one by one"
    return able, ""


def _lost_records(workspace: Workspace, dataset: Dataset) -> list[Dataset]:
    """Return the inputs that records were removed from."""
    tail, names = dataset.chain.tail(), workspace._names_by_id()
    assert tail is not None
    assert tail.transform is not None
    inputs = (workspace[names[each.dataset_ref]] for each in tail.transform.inputs)
    return [each for each in inputs if removals_of(each.chain)]


def _took_before_removal(source: Dataset, commit: DerivedCommit) -> bool:
    """Say whether a commit took an input before its newest removal; of a block that is cut off, no."""
    at = commit.positions.get(source.id)
    taken = None if at is None else source.chain.sequence_of(at.block)
    return taken is not None and taken < removals_of(source.chain).all[-1].sequence_number


def _parts(dataset: Dataset, found: list[DerivedCommit], mode: Replay, workers: int) -> Iterator[ReplayPart]:
    if mode == HEAD:
        if found:
            yield ReplayPart(dataset, tuple(found), head_only=True)
        return
    most = max(_COMMITS_OF_AN_INTERVAL, -(-len(found) // workers))
    for start in range(0, len(found), most):
        yield ReplayPart(dataset, tuple(found[start : start + most]))


def _replay_parts(
    workspace: Workspace, parts: Sequence[ReplayPart], progress: Progress | None, workers: int
) -> VerificationReport:
    tally, told = _Tally(progress), console.current()
    with console.use(WatchedConsole(told, tally.go_on, alone=len(parts) == 1)):
        context = copy_context()
    pool = ThreadPoolExecutor(min(workers, len(parts)))
    try:
        work = {pool.submit(context.copy().run, _replay_part, workspace, part, tally) for part in parts}
        while work:
            # Ctrl-C may reach another thread of this process, and does not wake this one then.
            done, work = wait(work, timeout=_LOOK, return_when=FIRST_COMPLETED)
            for each in done:
                each.result()
    except BaseException:
        tally.stopped = True
        _tell_so_far(told, tally, parts)
        raise
    finally:
        # What is under way ends at its next look.
        tally.stopped = True
        pool.shutdown(cancel_futures=True)
    return tally.report(parts)


def _tell_so_far(told: console.Console, tally: _Tally, parts: Sequence[ReplayPart]) -> None:
    """Say what a replay that does not come to its end has found, and how to go on."""
    for problem in tally.report(parts).problems:
        told.warn(f"{problem.kind}: {problem.message}", remedy=problem.remedy)
    for name, block in tally.reached(parts).items():
        told.say(
            f"{name} was replayed up to {block.short}; `trueline verify {name} --replay --after"
            f" {block.short}` goes on from there"
        )


class _GivenUp(Exception):
    """That nobody wants the result any more."""


class _Tally:
    """What was found, and how far each dataset came."""

    def __init__(self, progress: Progress | None) -> None:
        self._lock = Lock()
        self._progress = progress
        self._problems: dict[tuple[str, int], list[Problem]] = {}
        self._left_out: dict[str, None] = {}
        self.replayed = 0
        self.stopped = False

    def go_on(self) -> None:
        """Raise if the replay was given up."""
        if self.stopped:
            raise _GivenUp

    def add(self, dataset: Dataset, transaction: DerivedCommit, problems: Sequence[Problem]) -> None:
        with self._lock:
            self.replayed += 1
            self._problems[dataset.name, transaction.end.sequence_number] = _named(dataset, problems)
            if self._progress is not None:
                self._progress(self.replayed)

    def set(self, dataset: Dataset, transaction: DerivedCommit, problems: Sequence[Problem]) -> None:
        """Take what was found of a commit in the place of what was found before."""
        with self._lock:
            self._problems[dataset.name, transaction.end.sequence_number] = _named(dataset, problems)

    def leave_out(self, dataset: Dataset, why: str) -> None:
        """Take note that a commit was not replayed."""
        with self._lock:
            self._left_out[f"replay of {dataset.name}: {why}"] = None

    def reached(self, parts: Sequence[ReplayPart]) -> dict[str, Multihash]:
        """Return the commit of each dataset up to which all were replayed."""
        with self._lock:
            done = set(self._problems)
        found: dict[str, Multihash] = {}
        ended: set[str] = set()
        for part in parts:
            name = part.dataset.name
            for each in part.found:
                if (name, each.end.sequence_number) not in done:
                    ended.add(name)
                if name not in ended:
                    found[name] = each.end.hash
        return found

    def report(self, parts: Sequence[ReplayPart]) -> VerificationReport:
        with self._lock:
            problems = dict(sorted(self._problems.items()))
            report = VerificationReport(not_checked=tuple(self._left_out))
        for name in dict.fromkeys(part.dataset.name for part in parts):
            mine = [found for key, found in problems.items() if key[0] == name]
            wrong = tuple(problem for found in mine for problem in found)
            report += VerificationReport(problems=wrong, replayed=len(mine)).of(name)
        return report


def _named(dataset: Dataset, problems: Sequence[Problem]) -> list[Problem]:
    return [replace(each, message=f"{dataset.name}: {each.message}") for each in problems]


def _not_replayed(workspace: Workspace, dataset: Dataset) -> str | None:
    """Say why a dataset cannot be replayed; nothing ("") of what is not derived, None if it can be."""
    tail = dataset.chain.tail()
    if tail is None or tail.transform is None:
        return ""
    if not tail.transform.transform.is_ours:
        return f"it was derived by {tail.transform.transform.engine}"
    names = workspace._names_by_id()
    missing = [each for each in tail.transform.inputs if each.dataset_ref not in names]
    if missing:
        shown = ", ".join(each.alias or each.dataset_ref for each in missing)
        return f"its inputs are not in this workspace: {shown}"
    return f"records were removed from {dataset.name}" if removals_of(dataset.chain) else None


def _replay_part(workspace: Workspace, part: ReplayPart, tally: _Tally) -> None:
    dataset, last = part.dataset, part.found[-1]
    with Replaying.of(workspace, dataset) as replaying:
        for transaction in (last,) if part.head_only else part.found:
            if tally.stopped:
                return
            goes_on = transaction is not last and len(part.found) >= _WORTH_INCREMENTS
            try:
                problems = (
                    replaying.head_problems(transaction)
                    if part.head_only
                    else replaying.problems(transaction, goes_on=goes_on)
                )
            except NotReplayed as error:
                tally.leave_out(dataset, str(error))
            else:
                tally.add(dataset, transaction, problems)
        for verdict in replaying.verdicts.values():
            if verdict.unknown:
                tally.leave_out(dataset, verdict.unknown)
        replaying.settle()
        # Increments that agree with each other do not agree with the definition: which was the first?
        for transaction in replaying.suspect:
            if not tally.stopped:
                tally.set(dataset, transaction, replaying.problems(transaction, whole=True))
