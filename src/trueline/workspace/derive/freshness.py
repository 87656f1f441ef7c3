"""How far a dataset is behind, in commits and in time, and whether that is too far (derive:V30)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trueline.chain.branch import Branch
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import DerivedCheckpoint, derived_checkpoint
from trueline.chain.events import ExecuteTransform
from trueline.chain.head_state import Position
from trueline.chain.index_rows import IndexEntry
from trueline.chain.instant import Instant
from trueline.check import DatasetCheck
from trueline.dataset.derivation import checks_at, derivation_at
from trueline.dataset.duration import seconds
from trueline.errors import InputError, ObjectMissing, TruelineError
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import RootHead, Roots

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset

# So many cuts are looked at, from the newest back, for the one a dataset is at.
_CUTS: Final = 32
# So many commits are counted one by one: `status` asks for every dataset.
_MOST_COUNTED: Final = 1_000


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
    roots = Roots(workspace)
    chains = {
        root: chain for root in roots.under(dataset.name) if (chain := roots.chain_of(root)) is not None
    }
    heads = {root: RootHead.of(chain).position for root, chain in chains.items()}
    at = {root: position for root, position in heads.items() if position is not None}
    commits, late = lacking(chains, at, left, now)
    return Freshness(derivation.strategy, derivation.reason, commits, late, _cut_of(dataset, left))


def lacking(
    chains: Mapping[DatasetId, Chain],
    at: Mapping[DatasetId, Position],
    left: DerivedCheckpoint | None,
    now: Instant,
) -> tuple[int, float]:
    """Count the commits with data up to some positions of roots that a dataset has not taken.

    With them, how many seconds ago the first came.
    """
    commits, first = 0, now
    for root, position in at.items():
        before = None if left is None else left.origin.roots.get(root)
        if root not in chains or position == before:
            continue
        found, oldest = _between(chains[root], before, position)
        commits += found
        first = min(first, oldest)
    return commits, max(now - first, 0) / 1e9 if commits else 0.0


def _between(chain: Chain, before: Position | None, at: Position) -> tuple[int, Instant]:
    """Count the commits with data in (before, at] of a root, and say when the first of them was recorded.

    Of very many the older ones are counted by the index, which takes commits of metadata for others.
    """
    begin = None if before is None else chain.entry(before.block)
    limit = -1 if begin is None else begin.sequence_number
    end = chain.entry(at.block)
    assert end is not None
    count, oldest = 0, end
    while end is not None and end.sequence_number > limit:
        if end.is_end:
            count, oldest = count + 1, end
        if count >= _MOST_COUNTED:
            return count + end.commits - (begin.commits if begin is not None else 0), _time(oldest)
        earlier = chain.entry_number(end.sequence_number - 1)
        end = None if earlier is None or earlier.data is None else chain.entry_number(earlier.data)
    return count, _time(oldest)


def _time(entry: IndexEntry) -> Instant:
    return Instant(entry.time_us * 1000)


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
