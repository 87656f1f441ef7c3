"""What a pull would do to derived datasets: known from metadata, shown first, then carried out exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from trueline.chain.checkpoint import DerivedCheckpoint
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.errors import InputError, StalePlan, TruelineError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.dependencies import DatasetNode, Dependencies
from trueline.workspace.derive.follow import check_inputs
from trueline.workspace.derive.rest import Origins, left_at
from trueline.workspace.pull.derived import DerivedPull, in_phases, roots_of, stops_to
from trueline.workspace.pull.pull import report_of

if TYPE_CHECKING:
    from trueline.workspace.pull.report import Pulled, PullReport
    from trueline.workspace.workspace import Workspace

# What a stage is there for.
NEW: Final = "new"
BEHIND: Final = "behind"
REDEFINED: Final = "redefined"
CURRENT: Final = "current"
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class InputNews:
    """What is new in one input: the records after one offset, up to another.

    `upto` and `records` are None where that is known only when the input was pulled itself; `own_cut` is the
    reason for which it is read at a cut of its own.
    """

    name: str
    after: int | None = None
    upto: int | None = None
    records: int | None = None
    own_cut: str | None = None

    def __str__(self) -> str:
        if self.records is None:
            return f"{self.name}: after it was pulled"
        if not self.records:
            return f"{self.name}: nothing new"
        first = 0 if self.after is None else self.after + 1
        return f"{self.name}: {self.records:,} new ({first:,} to {self.upto:,})"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "after": self.after,
            "upto": self.upto,
            "records": self.records,
            "own_cut": self.own_cut,
        }


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a dataset is behind its roots: commits it lacks, and seconds since the first of them came."""

    commits: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.commits:
            return "up to date"
        return f"{self.commits:,} commit{'s' * (self.commits != 1)}, {_duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Stage:
    """What is to be done for one dataset.

    `state` is new, behind, redefined (it or what it rests on), current, or refused (`error` says why).
    `stops` are the cuts it is brought to, the last is the target. `estimate` counts the records of inputs
    that will be read, as far as that is known.
    """

    dataset: str
    state: str
    strategy: str
    reason: str
    inputs: tuple[InputNews, ...] = ()
    stops: tuple[int, ...] = ()
    behind: Behind = Behind()
    estimate: int = 0
    error: TruelineError | None = None
    head: Multihash | None = None
    definition: Multihash | None = None

    @property
    def moves(self) -> bool:
        """Whether there is anything to do."""
        return self.state not in (CURRENT, REFUSED)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        error = self.error
        return {
            "dataset": self.dataset,
            "state": self.state,
            "strategy": self.strategy,
            "reason": self.reason,
            "inputs": [each.to_dict() for each in self.inputs],
            "stops": list(self.stops),
            "behind": {"commits": self.behind.commits, "seconds": self.behind.seconds},
            "estimate": {"records": self.estimate},
            "error": None
            if error is None
            else {"code": error.code, "message": error.problem, "remedy": error.remedy},
        }


@dataclass(frozen=True, slots=True)
class PullPlan:
    """The stages of a pull, in order; `ws.pull(plan)` carries out exactly these (derive:V18).

    >>> plan = PullPlan((Stage("daily", BEHIND, "recompute", "window", behind=Behind(2, 90)),))
    >>> print(plan.explain())
    daily  behind: 2 commits, 1 min
        recompute (window)
    >>> plan.moves, plan["daily"].strategy
    (True, 'recompute')
    """

    stages: tuple[Stage, ...] = ()
    cuts: tuple[Cut, ...] = field(default=(), repr=False)
    phases: tuple[tuple[str, ...], ...] = field(default=(), repr=False)

    @property
    def moves(self) -> bool:
        """Whether there is anything to do."""
        return any(stage.moves for stage in self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Stage:
        for stage in self.stages:
            if stage.dataset == name:
                return stage
        raise KeyError(name)

    def explain(self) -> str:
        """Return in words what will be done, and why in this way."""
        return "\n".join(line for stage in self.stages for line in _explained(stage)) or "no derived datasets"

    def __str__(self) -> str:
        return self.explain()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        return {"moves": self.moves, "stages": [stage.to_dict() for stage in self.stages]}

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html_table

        rows = [
            (
                stage.dataset,
                stage.state,
                str(stage.behind) if stage.state == BEHIND else "",
                "; ".join(map(str, stage.inputs)),
                f"{stage.strategy} ({stage.reason})" if stage.reason else stage.strategy,
                stage.estimate if stage.moves else 0,
            )
            for stage in self.stages
        ]
        return html_table("Plan", ("dataset", "is", "behind", "new", "how", "records to read"), rows)


def _explained(stage: Stage) -> Iterator[str]:
    said = {CURRENT: "up to date", NEW: "new: nothing was computed yet", BEHIND: f"behind: {stage.behind}"}
    yield f"{stage.dataset}  {said.get(stage.state, stage.state)}"
    if stage.error is not None:
        yield f"    {stage.error.problem}"
        yield f"      → {stage.error.remedy}"
    if not stage.moves:
        return
    for each in stage.inputs:
        own = f", at a cut of its own: {each.own_cut}" if each.own_cut is not None else ""
        yield f"    {each}{own}"
    why = f" ({stage.reason})" if stage.reason else ""
    reads = f", reads about {stage.estimate:,} records" if stage.estimate else ""
    yield f"    {stage.strategy}{why}{reads}"
    if len(stage.stops) > 1:
        listed = ", ".join(map(str, stage.stops[:-1]))
        yield f"    stops on the way where others are: cut{'s' * (len(stage.stops) > 2)} {listed}"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


# --- making a plan ------------------------------------------------------------------------------


def plan(workspace: Workspace, names: Sequence[str]) -> PullPlan:
    """Plan the derived datasets among those that are named and all they rest on; nothing is changed."""
    known = Dependencies.of(workspace)
    chosen = known.named(names) if names else list(known.nodes)
    wanted = {each for name in chosen for each in (name, *known.upstream(name))}
    log, now = CutLog.of(workspace), (workspace.clock or Instant.now)()
    stages: dict[str, Stage] = {}
    cuts, phases = [], in_phases(known, sorted(wanted))
    for phase in phases:
        cut = log.preview(known[name].dataset.id for name in roots_of(known, phase))
        cuts.append(cut)
        stops = stops_to(log, known, phase, cut)
        for name in phase:
            at = tuple(each.number for each in stops[name])
            stages[name] = _Planning(Origins(known, cut), stages, now).stage(name, at)
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
        try:
            check_inputs(known, node, tail)
        except InputError as error:
            refused = Stage(name, REFUSED, strategy, reason, error=error, head=tail.head)
            return replace(refused, definition=node.definition)
        left = left_at(node.dataset.chain, tail)
        inputs = tuple(self._news(node, each) for each in known.inputs(name))
        state = self._state(node, left, inputs)
        full = strategy == "recompute" or left is None
        read = [(each.upto + 1 if each.upto is not None else 0) if full else each.records for each in inputs]
        return Stage(
            name,
            state,
            strategy,
            reason,
            inputs,
            stops if state != CURRENT else stops[-1:],
            behind(self.origins, name, left, self.now),
            sum(each or 0 for each in read) * (len(stops) if full else 1) if state != CURRENT else 0,
            head=tail.head,
            definition=node.definition,
        )

    def _state(self, node: DatasetNode, left: DerivedCheckpoint | None, inputs: Sequence[InputNews]) -> str:
        if left is None:
            return NEW
        origin = self.origins.of(node.name)
        if left.origin.roots != origin.roots or any(each.records is None for each in inputs):
            return BEHIND
        return CURRENT if left.at_rest and left.origin == origin else REDEFINED

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


def _count(offset: int | None) -> int:
    return 0 if offset is None else offset + 1


def behind(origins: Origins, name: str, left: DerivedCheckpoint | None, now: Instant) -> Behind:
    """Say how far a dataset is behind a cut of its roots."""
    chains = origins.order.chains
    commits, first = 0, now
    for root, at in origins.of(name).roots.items():
        chain = chains.get(root)
        end = None if chain is None else chain.entry(at.block)
        if chain is None or end is None:
            continue
        before = None if left is None else left.origin.roots.get(root)
        begin = None if before is None else chain.entry(before.block)
        lacks = end.commits - (begin.commits if begin is not None else 0)
        if lacks <= 0:
            continue
        commits += lacks
        following = chain.entry_number(begin.sequence_number + 1 if begin is not None else 0)
        assert following is not None
        first = min(first, Instant(following.time_us * 1000))
    return Behind(commits, (now - first) / 1e9 if commits else 0.0)


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
        _check_cut(cut, log.preview(roots.values()), fixed)
        recorded = log.record(roots.values())
        _check_cut(cut, recorded, fixed)
        able = [name for name in phase if not _waits(known, name, done)]
        stops = stops_to(log, known, able, recorded)
        other = [
            name
            for name in able
            if plan[name].moves and [each.number for each in stops[name][:-1]] != list(plan[name].stops[:-1])
        ]
        if other:
            raise _stale(other)
        done += DerivedPull(workspace, known, log, stops, workers, lambda: moment).run()
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
