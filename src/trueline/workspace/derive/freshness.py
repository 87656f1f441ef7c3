"""How far a dataset is behind, in commits and in time, and whether that is too far (derive:V30)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trueline.chain.branch import Branch
from trueline.chain.checkpoint import DerivedCheckpoint, derived_checkpoint
from trueline.chain.events import ExecuteTransform
from trueline.chain.instant import Instant
from trueline.check import DatasetCheck
from trueline.dataset.derivation import checks_at, derivation_at
from trueline.dataset.duration import seconds
from trueline.errors import InputError, ObjectMissing, TruelineError
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import RootHead, Roots

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset

# So many cuts are looked at, from the newest back, for the one a dataset is at.
_CUTS: Final = 32


@dataclass(frozen=True, slots=True)
class Freshness:
    """How a derived dataset follows its inputs, and how far it is behind them.

    `commits` are those of its roots that it lacks, `seconds` is how long ago the first of them came, and
    `cut` the number of the newest cut that it is at, None if that is not known.
    """

    strategy: str
    reason: str
    commits: int
    seconds: float
    cut: int | None


def freshness_of(dataset: Dataset) -> Freshness | None:
    """Look at the heads of the roots of a derived dataset; None for what is not computed here."""
    tail = dataset._tail
    derivation = derivation_at(tail)
    if derivation is None:
        return None
    workspace = dataset.workspace
    now = (workspace.clock or Instant.now)()
    left = None
    with suppress(ObjectMissing, InputError):
        if isinstance(tail.data, ExecuteTransform):
            left = derived_checkpoint(dataset.chain.store, tail.data)
    commits, first = 0, now
    roots = Roots(workspace)
    for root in roots.under(dataset.name):
        chain = roots.chain_of(root)
        end = None if chain is None else RootHead.of(chain).end
        before = None if left is None else left.origin.roots.get(root)
        if chain is None or end is None:
            continue
        begin = None if before is None else chain.entry(before.block)
        lacking = end.commits - (begin.commits if begin is not None else 0)
        if lacking > 0:
            commits += lacking
            following = chain.entry_number(begin.sequence_number + 1 if begin is not None else 0)
            if following is not None:
                first = min(first, Instant(following.time_us * 1000))
    late = max(0.0, (now - first) / 1e9) if commits else 0.0
    return Freshness(derivation.strategy, derivation.reason, commits, late, _cut_of(dataset, left))


def _cut_of(dataset: Dataset, left: DerivedCheckpoint | None) -> int | None:
    if left is None or not left.at_rest:
        return None
    log = CutLog.of(dataset.workspace)
    with suppress(TruelineError):
        newest = log.newest().number
        for number in range(newest, max(0, newest - _CUTS), -1):
            cut = log.cut(number)
            if all(root in cut and cut[root] == at for root, at in left.origin.roots.items()):
                return number
    return None


@dataclass(frozen=True, slots=True)
class BrokenAge:
    """A check of the age of a dataset that fails: how old the newest data are, None if there are none."""

    check: DatasetCheck
    age: float | None

    def __str__(self) -> str:
        since = "there are no data" if self.age is None else f"the newest data are {self.age:,.0f} s old"
        return f"{self.check}: {since}"


def broken_ages(dataset: Dataset) -> list[BrokenAge]:
    """Return the checks of a dataset's age that fail now."""
    tail = dataset._tail
    checks = [check for check in checks_at(tail) if check.kind == "max_age"]
    if not checks:
        return []
    now = (dataset.workspace.clock or Instant.now)()
    newest: Instant | None = None
    if tail.vocab.event_time_column is not None and tail.watermark is not None:
        newest = tail.watermark
    elif (end := next(Branch.of(dataset.chain).data_ends(), None)) is not None:
        newest = Instant(end.time_us * 1000)
    age = None if newest is None else (now - newest) / 1e9
    return [BrokenAge(check, age) for check in checks if age is None or age > seconds(check.option("age"))]
