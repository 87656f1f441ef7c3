"""Planning a pull of derived datasets from metadata alone, and carrying out exactly what was planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trueline.chain.checkpoint import DerivedCheckpoint
from trueline.chain.head_state import Position, Tail
from trueline.chain.instant import Instant
from trueline.chain.sources import ENGINE
from trueline.dataset.derivation import CANONICAL, Derivation
from trueline.errors import InputError, StalePlan, TruelineError
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.dependencies import DatasetNode, Dependencies
from trueline.workspace.derive.follow import check_inputs
from trueline.workspace.derive.freshness import lacking
from trueline.workspace.derive.input_tables import not_taken, only_grow, tables_of
from trueline.workspace.derive.redefine import in_force
from trueline.workspace.derive.request import steps_of
from trueline.workspace.derive.rest import Origins, left_at
from trueline.workspace.derive.strategies.classify import KEYED, RECOMPUTE
from trueline.workspace.derive.strategies.increment import removed_since
from trueline.workspace.derive.strategies.keyed import KEPT, state_name
from trueline.workspace.plan.stages import (
    BEHIND,
    CURRENT,
    NEW,
    REDEFINED,
    REFUSED,
    Behind,
    InputNews,
    PullPlan,
    Stage,
)
from trueline.workspace.pull.derived import DerivedPull, groups_of, in_phases, roots_of
from trueline.workspace.pull.going import GoingTo, going_to, route_to
from trueline.workspace.pull.pull import report_of

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.pull.report import Pulled, PullReport
    from trueline.workspace.workspace import Workspace


def plan(workspace: Workspace, names: Sequence[str]) -> PullPlan:
    """Plan the derived datasets among those that are named and all they rest on; nothing is changed."""
    known = Dependencies.of(workspace)
    chosen = known.named(names) if names else in_force(workspace, known)
    wanted = {each for name in chosen for each in (name, *known.upstream(name))}
    log, now = CutLog.of(workspace), (workspace.clock or Instant.now)()
    stages: dict[str, Stage] = {}
    cuts, phases = [], in_phases(known, sorted(wanted))
    going = GoingTo.of(workspace).read()
    for phase in phases:
        roots = [known[name].dataset.id for name in roots_of(known, phase)]
        cut = log.preview(roots, groups_of(known, phase))
        cuts.append(cut)
        route = route_to(log, known, phase, cut, going)
        for name, stops in route.stops.items():
            stage = _Planning(Origins(known, cut), stages, now).stage(
                name, tuple(each.number for each in stops)
            )
            stages[name] = replace(stage, along_with=tuple(sorted(route.along.get(name, ()))))
    return PullPlan(tuple(stages.values()), tuple(cuts), tuple(map(tuple, phases)))


@dataclass(frozen=True)
class _Planning:
    """Makes the stages of one cut; `before` are those of what datasets read."""

    origins: Origins
    before: Mapping[str, Stage]
    now: Instant

    def stage(self, name: str, stops: tuple[int, ...]) -> Stage:
        known = self.origins.known
        node = known[name]
        tail = node.dataset.chain.tail()
        assert tail is not None
        assert node.derivation is not None
        strategy, reason = node.derivation.strategy, node.derivation.reason
        if (error := self._refused(node, tail)) is not None:
            refused = Stage(name, REFUSED, strategy, reason, error=error, head=tail.head)
            return replace(refused, definition=node.definition)
        left = left_at(node.dataset.chain, tail)
        inputs = tuple(self._news(node, each) for each in known.inputs(name))
        state = self._state(node, left, inputs)
        # What is always recomputed is so at each stop; from one whole result increments go on.
        times = len(stops) if strategy == RECOMPUTE else 1
        if left is not None and (why := self._why_whole(node, tail, left)):
            strategy, reason = RECOMPUTE, why
        whole = strategy == RECOMPUTE or left is None
        return Stage(
            name,
            state,
            strategy,
            reason,
            inputs,
            stops if state != CURRENT else stops[-1:],
            behind(self.origins, name, left, self.now),
            _read(inputs, times if whole else 0) if state != CURRENT else 0,
            head=tail.head,
            definition=node.definition,
            kept=_kept(left),
            not_taken=self._not_taken(node, node.derivation),
        )

    def _refused(self, node: DatasetNode, tail: Tail) -> TruelineError | None:
        """Return why a pull would refuse a dataset, or what it needs."""
        try:
            check_inputs(self.origins.known, node, tail)
        except InputError as error:
            return error
        needed = (self.before.get(each) for each in self.origins.known.needs(node.name))
        return next((each.error for each in needed if each is not None and each.state == REFUSED), None)

    def _why_whole(self, node: DatasetNode, tail: Tail, left: DerivedCheckpoint) -> str:
        """Say why what follows by the increment is computed as a whole once, as far as metadata show it."""
        derivation = node.derivation
        assert derivation is not None
        if derivation.strategy == RECOMPUTE:
            return ""
        before = left.definition, left.engine, left.versions.get("canonical", CANONICAL), derivation.version
        is_other = tail.redefined or before != (node.definition, ENGINE, CANONICAL, CANONICAL)
        if is_other and not derivation.from_here:
            return "redefined"
        inputs = {alias: self.origins.known[name].dataset for alias, name in node.inputs.items()}
        grows = only_grow((table, inputs[table.alias]) for table in tables_of(derivation))
        if derivation.strategy == KEYED and left.more.get(KEPT) != state_name(append_only=grows):
            return "no_state"
        return "records_removed" if self._lost_records(node, tail) else ""

    def _lost_records(self, node: DatasetNode, tail: Tail) -> bool:
        """Say whether records of an input were removed since it was taken: no increment says which."""
        datasets = (self.origins.known[name].dataset for name in node.inputs.values())
        taken = ((each, tail.taken.get(each.id)) for each in datasets)
        return any(
            at is not None and at.last_block is not None and removed_since(each, at.last_block)
            for each, at in taken
        )

    def _not_taken(self, node: DatasetNode, derivation: Derivation) -> dict[str, tuple[str, ...]]:
        """Return the columns of inputs, by their names in the workspace, that its stars do not stand for."""
        steps = steps_of(derivation)
        written = [steps] if isinstance(steps, str) else [text for _, text in steps]
        known = {alias: self.origins.known[name].dataset for alias, name in node.inputs.items()}
        found = not_taken(derivation, written, {alias: _columns(each) for alias, each in known.items()})
        return {node.inputs[alias]: columns for alias, columns in found.items()}

    def _state(self, node: DatasetNode, left: DerivedCheckpoint | None, inputs: Sequence[InputNews]) -> str:
        if left is None:
            return NEW
        origin = self.origins.of(node.name)
        if left.origin.roots != origin.roots or any(each.records is None for each in inputs):
            return BEHIND
        assert node.derivation is not None
        # Canonical queries of an earlier version are recorded again first.
        same = node.derivation.version == CANONICAL and left.origin == origin
        return CURRENT if left.at_rest and same else REDEFINED

    def _news(self, reader: DatasetNode, name: str) -> InputNews:
        """Say what is new in an input, at the cut; of one that moves itself that is not known yet."""
        node = self.origins.known[name]
        tail = reader.dataset.chain.tail()
        assert tail is not None
        assert node.id is not None
        taken = tail.taken.get(node.id)
        after = None if taken is None else taken.last_offset
        own = reader.own_cuts.get(name)
        stage = self.before.get(name)
        if stage is not None and stage.state != CURRENT:
            return InputNews(name, after, own_cut=own)
        at: Position | None
        if node.is_root or own is not None:
            at = self.origins.position(reader, node)
        else:
            known = node.dataset.chain.tail()
            at = None if known is None else known.position
        upto = None if at is None else at.offset
        return InputNews(name, after, upto, _count(upto) - _count(after), own)


def _kept(left: DerivedCheckpoint | None) -> tuple[int, int]:
    """Return how many rows and bytes are kept for the next increment; of a row, perhaps several versions."""
    if left is None or KEPT not in left.more:
        return 0, 0
    files = [file for file in left.state if file.notes.get("state") == left.more[KEPT]]
    return sum(file.notes.get("rows", 0) for file in files), sum(file.size for file in files)


def _read(inputs: Sequence[InputNews], whole: int) -> int:
    """Return how many records of inputs will be read: all of them so many times, or what is new if never."""
    if not whole:
        return sum(each.records or 0 for each in inputs)
    return whole * sum(_count(each.after if each.upto is None else each.upto) for each in inputs)


def _columns(dataset: Dataset) -> Sequence[str]:
    schema = dataset.schema
    return () if schema is None else schema.names


def _count(offset: int | None) -> int:
    return 0 if offset is None else offset + 1


def behind(origins: Origins, name: str, left: DerivedCheckpoint | None, now: Instant) -> Behind:
    """Say how far a dataset is behind a cut of its roots: the commits with data that it has not taken."""
    return Behind(*lacking(origins.order.chains, origins.of(name).roots, left, now))


# --- carrying it out ----------------------------------------------------------------------------


def apply(workspace: Workspace, plan: PullPlan, *, workers: int = 8) -> PullReport:
    """Do what a plan says and nothing else; what has moved since raises `StalePlan` first."""
    known = Dependencies.of(workspace)
    moved = [stage.dataset for stage in plan if not _is_as_planned(known, stage)]
    if moved:
        raise _stale(moved)
    log, moment = CutLog.of(workspace), (workspace.clock or Instant.now)()
    done: list[Pulled] = []
    for cut, phase in zip(plan.cuts, plan.phases, strict=True):
        roots = {name: known[name].dataset.id for name in roots_of(known, phase)}
        # What is computed in an earlier phase has moved, since the plan says so.
        fixed = {name: root for name, root in roots.items() if not known[name].is_computed}
        groups = groups_of(known, phase)
        _check_cut(cut, log.preview(roots.values(), groups), fixed)
        recorded = log.record(roots.values(), groups)
        _check_cut(cut, recorded, fixed)
        able = [name for name in phase if not _waits(known, name, done)]
        with going_to(GoingTo.of(workspace), log, known, able, recorded) as route:
            there = {stage.dataset: stage for stage in plan}
            planned = {
                name: (*each.stops[:-1], recorded.number) for name, each in there.items() if each.moves
            }
            found = {name: tuple(each.number for each in stops) for name, stops in route.stops.items()}
            if other := [name for name in found if name in planned and found[name] != planned[name]]:
                raise _stale(other)
            if other := [name for name in route.along if name not in there]:
                raise _stale(other)
            done += DerivedPull(workspace, known, log, route, workers, lambda: moment).run()
    return report_of(done)


def _waits(known: Dependencies, name: str, done: Sequence[Pulled]) -> bool:
    failed = {each.dataset for each in done if each.error is not None or each.waits_for}
    return bool(failed & known.upstream(name))


def _is_as_planned(known: Dependencies, stage: Stage) -> bool:
    node = known.nodes.get(stage.dataset)
    return node is not None and node.definition == stage.definition and node.dataset.head == stage.head


def _check_cut(planned: Cut, found: Cut, roots: Mapping[str, DatasetId]) -> None:
    moved = [name for name, root in roots.items() if planned.positions.get(root) != found.positions.get(root)]
    if moved:
        raise _stale(moved)


def _stale(moved: Sequence[str]) -> StalePlan:
    shown = ", ".join(sorted(moved))
    return StalePlan(
        f"the plan is stale: {shown} moved since it was made",
        remedy="make the plan again, look at it, and pull that",
        moved=tuple(sorted(moved)),
    )
