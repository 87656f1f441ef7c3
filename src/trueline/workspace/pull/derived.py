"""Derived datasets brought to a cut: each after what it reads, those that wait for nobody beside each other.

The order is that of a graph whose nodes are transactions: a dataset at one of its stops. It follows the stop
before and the same stop of what it reads, and nothing else, so that nobody waits for a slow stranger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from queue import SimpleQueue
from typing import TYPE_CHECKING

from trueline import console
from trueline.chain.events import SetTransform
from trueline.chain.instant import Instant
from trueline.dataset.derivation import derivation_at
from trueline.errors import (
    CorruptionError,
    InputError,
    OutcomeUnknown,
    StoreError,
    TaskFailed,
)
from trueline.identity.dataset_id import DatasetId
from trueline.kernel.tasks import failure
from trueline.run import Step
from trueline.run.attempt import Attempt, Outcome
from trueline.run.executors import Threads
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import RootHead
from trueline.workspace.dependencies import DatasetNode, Dependencies
from trueline.workspace.derive.follow import follow_to, refresh
from trueline.workspace.derive.rest import NOT_AT_REST
from trueline.workspace.derive.strategies import Advanced
from trueline.workspace.derive.strategies.classify import RECOMPUTE
from trueline.workspace.pull.going import GoingTo, Route, going_to
from trueline.workspace.pull.report import FROM_HERE, Pulled
from trueline.workspace.pull.scheduler import go_on
from trueline.workspace.pull.watched import WatchedConsole

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

GraphNode = tuple[str, int]


def in_phases(known: Dependencies, names: Sequence[str]) -> list[list[str]]:
    """Return derived datasets in the order of the cuts they are brought to; mostly there is one.

    What reads inputs at cuts of their own is a root of a later cut, so that it is brought up to date before.
    """
    chosen = [name for name in known.in_order(names) if known[name].is_computed]
    phase: dict[str, int] = {}
    for name in chosen:
        above = [phase[each] + bool(known[each].own_cuts) for each in known.needs(name) if each in phase]
        phase[name] = max(above, default=0)
    return [[name for name in chosen if phase[name] == number] for number in sorted(set(phase.values()))]


def roots_of(known: Dependencies, names: Sequence[str]) -> frozenset[str]:
    """Return the roots that the inputs of datasets rest on: where a cut has to have positions.

    So has it for what their checks refer to.
    """
    return frozenset(
        root
        for name in names
        for each in known.needs(name)
        if each not in known[name].own_cuts
        for root in known.roots(each)
    )


def groups_of(known: Dependencies, names: Sequence[str]) -> list[frozenset[DatasetId]]:
    """Return the roots that each of some datasets reads together."""
    under = (roots_of(known, [name]) for name in names)
    return [frozenset(known[root].dataset.id for root in roots) for roots in under]


def pull_derived(
    workspace: Workspace,
    known: Dependencies,
    names: Sequence[str],
    *,
    workers: int = 8,
    clock: Callable[[], Instant] | None = None,
    full_refresh: bool = False,
) -> list[Pulled]:
    """Record a cut of what datasets rest on and bring them exactly there; what fails is in the answer.

    So are roots that cannot be looked at: what rests on them waits, others go on (derive:V20).
    """
    done: list[Pulled] = []
    log = CutLog.of(workspace)
    for phase in in_phases(known, names):
        able, cut = _begun(log, known, phase, done)
        if cut is not None:
            with going_to(GoingTo.of(workspace), log, known, able, cut) as route:
                done += DerivedPull(workspace, known, log, route, workers, clock, full_refresh).run()
    return done


def _begun(
    log: CutLog, known: Dependencies, phase: Sequence[str], done: list[Pulled]
) -> tuple[Sequence[str], Cut | None]:
    """Record the cut of those datasets that can be brought there; `done` gets what stops the others."""
    able = phase
    while able:
        failed = {each.dataset for each in done if each.error is not None or each.waits_for}
        blocked = {name: sorted(failed & known.upstream(name)) for name in able}
        done += [Pulled(name, cut=0, waits_for=tuple(why)) for name, why in blocked.items() if why]
        able = [name for name in able if not blocked[name]]
        roots = sorted(roots_of(known, able))
        try:
            return able, log.record([known[root].dataset.id for root in roots], groups_of(known, able))
        except (CorruptionError, InputError):
            damaged = _damaged(known, roots)
            if not damaged:
                raise
            done += damaged
    return able, None


def _damaged(known: Dependencies, roots: Sequence[str]) -> list[Pulled]:
    """Return the roots that cannot be looked at, each with the reason."""
    found: list[Pulled] = []
    for name in roots:
        try:
            RootHead.of(known[name].dataset.chain)
            error = known[name].problem
        except (CorruptionError, InputError) as caught:
            error = caught
        if error is not None:
            found.append(Pulled(name, error=error))
    return found


def bring_to(workspace: Workspace, names: Sequence[str], cut: Cut) -> None:
    """Bring datasets, and what they rest on, exactly to a recorded cut; the first failure is raised."""
    known, log = Dependencies.of(workspace), CutLog.of(workspace)
    wanted = {each for name in names for each in (name, *known.upstream(name))}
    for phase in in_phases(known, sorted(wanted)):
        with going_to(GoingTo.of(workspace), log, known, phase, cut) as route:
            pulled = DerivedPull(workspace, known, log, route).run()
        for done in pulled:
            if done.error is not None:
                raise done.error


@dataclass
class DerivedPull:
    """Brings datasets to their stops; what each did, and what went wrong, is in `done`."""

    workspace: Workspace
    known: Dependencies
    log: CutLog
    route: Route
    workers: int = 8
    clock: Callable[[], Instant] | None = None
    full_refresh: bool = False
    done: dict[str, Pulled] = field(default_factory=dict)

    @property
    def stops(self) -> Mapping[str, Sequence[Cut]]:
        """The cuts at which each dataset stops."""
        return self.route.stops

    def run(self) -> list[Pulled]:
        """Bring all of them there; one that fails stops those that rest on it, and no others (derive:V20)."""
        held = _held(self.known, self.log, list(self.stops))
        self.done = {
            name: Pulled(name, cut=stops[-1].number, broken=stops[-1].broken, held_by=held.get(name, ()))
            for name, stops in self.stops.items()
        }
        sorter = TopologicalSorter(self._graph())
        sorter.prepare()
        posted: SimpleQueue[tuple[Attempt, Outcome | BaseException]] = SimpleQueue()
        executor, flying = Threads(self.workers), dict[int, Attempt]()
        executor.start([], lambda attempt, outcome: posted.put((attempt, outcome)))
        told = console.current()
        number = 0
        try:
            with told.progress("derive", len(self.stops)) as bar:
                step = self._step(told, bar)
                while sorter.is_active():
                    for node in sorter.get_ready():
                        if self._is_stopped(node[0]):
                            sorter.done(node)
                            continue
                        number += 1
                        flying[number] = Attempt(number, 0, 0, {node: ((), None)})
                        executor.submit(step, flying[number], [(node, self.stops[node[0]][node[1]])])
                    if flying:
                        attempt, outcome = posted.get()
                        del flying[attempt.number]
                        (node,) = attempt.items
                        self._take(node, outcome)
                        if node[1] == len(self.stops[node[0]]) - 1:
                            bar.advance()
                        sorter.done(node)
        finally:
            # Given up, perhaps by Ctrl-C: what is under way ends at the next look, and nothing is committed.
            for attempt in flying.values():
                attempt.token.supersede()
            executor.stop()
        return [self.done[name] for name in self.stops]

    def _graph(self) -> dict[GraphNode, list[GraphNode]]:
        graph: dict[GraphNode, list[GraphNode]] = {}
        for name, stops in self.stops.items():
            for place, cut in enumerate(stops):
                joined = [(each, len(self.stops[each]) - 1) for each in self.route.before(name)]
                before = [(name, place - 1)] if place else joined
                for above in self.known.needs(name):
                    passed = [
                        at for at, each in enumerate(self.stops.get(above, ())) if each.number <= cut.number
                    ]
                    before += [(above, passed[-1])] if passed else []
                graph[name, place] = before
        return graph

    def _step(self, told: console.Console, bar: console.Progress) -> Step:
        with console.use(WatchedConsole(told, go_on, alone=len(self.stops) == 1)):
            context = copy_context()

        def bring(node: GraphNode, cut: Cut) -> tuple[Advanced | None, bool | None]:
            bar.describe(node[0])
            return context.copy().run(self._bring, node, cut)

        return Step(map=bring, name="derive", eager=False)

    def _bring(self, node: GraphNode, cut: Cut) -> tuple[Advanced | None, bool | None]:
        """Do one transaction, in a worker.

        A stop on the way is passed over where an input has not made it, and where rows there, which may have
        been corrected since, break a check, a key or the query (derive:V8).
        """
        name, place = node
        is_last = place == len(self.stops[name]) - 1
        dataset = self.known[name].dataset
        go_on()
        try:
            made = follow_to(self.workspace, dataset, cut, known=self.known, clock=self.clock)
        except Exception as error:
            if is_last or not _may_be_corrected(error):
                raise
            return None, None
        if not (is_last and self._is_refreshed(name)):
            return made, None
        if _keeps_rows(dataset):
            return made, None
        if made is not None and made.commit.blocks and self._strategy(name) == RECOMPUTE:
            return made, False  # it was computed from scratch just now
        again = refresh(self.workspace, dataset, clock=self.clock)
        return again or made, again is not None

    def _take(self, node: GraphNode, outcome: Outcome | BaseException) -> None:
        """Note what came of a transaction."""
        name, place = node
        error = outcome if isinstance(outcome, BaseException) else None
        if isinstance(outcome, Outcome) and outcome.errors:
            error = outcome.errors[0][1]
        before = self.done[name]
        if error is not None:
            if not isinstance(error, Exception):
                raise error
            self.done[name] = replace(before, error=failure(error, label=f"pull {name}", index=0))
            self._stop_readers(name)
            return
        assert isinstance(outcome, Outcome)
        made, differed = outcome.changed[0][1]
        is_last = place == len(self.stops[name]) - 1
        kept = FROM_HERE if is_last and self._is_refreshed(name) and differed is None else ""
        self.done[name] = replace(before, differed=differed, not_refreshed=kept)
        if made is not None:
            self.done[name] = self._with(self.done[name], made)
        if differed or _is_defined_again(self.known[name]):
            # Its definition was recorded again, so that what rests on it follows.
            self.known = Dependencies.of(self.workspace)
        dataset = self.known[name].id
        assert dataset is not None
        # A hint for who waits, after the head: heads decide, so that a lost one costs a little time.
        with suppress(StoreError, OutcomeUnknown):
            self.log.put_reached(self.stops[name][place].number, dataset)

    def _with(self, before: Pulled, made: Advanced) -> Pulled:
        """Note a commit, how it was computed, and why as a whole where its strategy is another."""
        return replace(
            before,
            commits=(*before.commits, made.commit),
            strategy=made.strategy,
            reason="" if self._strategy(before.dataset) == RECOMPUTE else made.reason,
            driver_bytes=before.driver_bytes + made.driver_bytes,
        )

    def _is_refreshed(self, name: str) -> bool:
        return self.full_refresh and name not in self.route.along

    def _strategy(self, name: str) -> str:
        derivation = self.known[name].derivation
        return RECOMPUTE if derivation is None else derivation.strategy

    def _stop_readers(self, name: str) -> None:
        for reader in self.known.downstream(name):
            if reader in self.done and self.done[reader].error is None:
                waits = (*self.done[reader].waits_for, name)
                self.done[reader] = replace(self.done[reader], waits_for=waits)

    def _is_stopped(self, name: str) -> bool:
        return self.done[name].error is not None or bool(self.done[name].waits_for)


def _held(known: Dependencies, log: CutLog, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the open transactions that keep newer records of roots from datasets, as people are told."""
    roots = {known[root].dataset.id: known[root].dataset.chain for root in roots_of(known, names)}
    holding = [
        (each.roots.keys(), each.told)
        for each in log.intents.holding(roots)
        if any(root in roots and RootHead.of(roots[root]).position != at for root, at in each.roots.items())
    ]
    under = {name: {known[root].dataset.id for root in roots_of(known, [name])} for name in names if holding}
    return {name: tuple(told for held, told in holding if held & own) for name, own in under.items()}


def _is_defined_again(node: DatasetNode) -> bool:
    defined = node.dataset.chain.newest(SetTransform)
    return defined is not None and defined.hash != node.definition


def _keeps_rows(dataset: Dataset) -> bool:
    """Say whether rows of earlier definitions stay, which the one in force does not give."""
    derivation = derivation_at(dataset._tail)
    return derivation is not None and derivation.from_here


def _may_be_corrected(error: Exception) -> bool:
    """Say whether a later cut may not have an error: it comes of rows, or of an input that is not there."""
    found = failure(error, label="pull", index=0)
    return isinstance(found, InputError | TaskFailed) or found.code == NOT_AT_REST
