"""What a pull would do to derived datasets, stage by stage: shown first, then carried out exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trueline.errors import TruelineError
from trueline.identity.multihash import Multihash
from trueline.workspace.cuts.cut import Cut

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
    `strategy` is the one of its definition, but where all has to be computed once `recompute`; `reason` is a
    code that says why. `stops` are the cuts it is brought to, the last is the target. `estimate` counts the
    records of inputs that will be read, as far as that is known. `kept` is what it keeps beside its rows to
    follow by the increment: rows (one for a group), and bytes, with all values that groups were given and how
    often. `not_taken` are the columns of inputs that came after its definition was written out from a star.
    `along_with` are new datasets that join it with others: nobody named it, and without it there would be no
    cut at which these can be read with it.
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
    kept: tuple[int, int] = (0, 0)
    not_taken: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    along_with: tuple[str, ...] = ()

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
            "kept": {"rows": self.kept[0], "bytes": self.kept[1]},
            "not_taken": {name: list(columns) for name, columns in self.not_taken.items()},
            "along_with": list(self.along_with),
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
    for each in stage.inputs:
        own = f", at a cut of its own: {each.own_cut}" if each.own_cut is not None else ""
        if own or stage.moves:
            yield f"    {each}{own}"
    for name, columns in stage.not_taken.items():
        yield f"    {name}: not in its *, which stands for what was there: {', '.join(columns)}"
    if not stage.moves:
        return
    why = f" ({stage.reason})" if stage.reason else ""
    reads = f", reads about {stage.estimate:,} records" if stage.estimate else ""
    rows, size = stage.kept
    kept = f", keeps {rows:,} row{'s' * (rows != 1)} ({size:,} bytes) beside its own" if size else ""
    yield f"    {stage.strategy}{why}{reads}{kept}"
    if stage.along_with:
        joining = ", ".join(stage.along_with)
        yield f"    comes along: {joining} could not be read together with it otherwise"
    if len(stage.stops) > 1:
        listed = ", ".join(map(str, stage.stops[:-1]))
        yield f"    stops on the way where others are: cut{'s' * (len(stage.stops) > 2)} {listed}"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
