"""Where roots that are read by themselves show no part of a transaction, now or at a moment (cut:P2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from trueline.chain.branch import WENT_BACK, Branch
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.errors import RetryError
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog, CutPlan
from trueline.workspace.cuts.roots import RootHead, Roots
from trueline.workspace.cuts.transaction import Intents, IntentState
from trueline.workspace.snapshot.histories import Histories, look
from trueline.workspace.snapshot.search import NOTHING, OFF_BRANCH

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

# Each time a cut was recorded between two looks.
_ATTEMPTS: Final = 16

# Of each root of a transaction: the block it was at before, and the one by which all of it was there.
Spans = Mapping[DatasetId, tuple[int, int]]


def between_transactions(
    workspace: Workspace, asked: Mapping[DatasetId, Dataset], moment: Instant | None
) -> tuple[Histories, dict[DatasetId, int]]:
    """Look at datasets, and hold roots that are read by themselves where no transaction is shown in part.

    As cuts are recorded: intents are read before and after the heads, and a cut that was recorded meanwhile,
    which may have passed a transaction, makes all of it begin again.
    """
    log = CutLog.of(workspace)
    for _ in range(_ATTEMPTS):
        last = log.newest()
        before = log.intents.passing()
        histories = look(Roots(workspace), asked, moment)
        after = log.intents.passing()
        if log.newest().number == last.number:
            break
    else:
        raise RetryError("cuts are recorded all the time", code=WENT_BACK)
    roots = {name: histories[name].branch for name in asked if not histories[name].inputs}
    if moment is not None:
        return histories, RootsThen(roots).held(log, after)
    if not before and not after:
        return histories, {}
    heads = {name: RootHead.on(branch) for name, branch in roots.items()}
    held = CutPlan.of(last, heads, before, after).positions
    numbers = {name: head.number_of(held[name]) for name, head in heads.items()}
    return histories, {name: number for name, number in numbers.items() if number is not None}


class RootsThen:
    """Roots as they were at a moment, beside what came later.

    Each cut tells which transactions it is the first to show, and where their roots were before. One that no
    cut has shown yet is an intent.
    """

    def __init__(self, then: Mapping[DatasetId, Branch]) -> None:
        self._now = {name: RootHead.of(branch.chain) for name, branch in then.items()}
        found = {name: RootHead.on(branch).end for name, branch in then.items()}
        self._at = {name: NOTHING if end is None else end.sequence_number for name, end in found.items()}

    def held(self, log: CutLog, intents: Intents) -> dict[DatasetId, int]:
        """Return where roots are held: before each transaction of which only a part was there."""
        held: dict[DatasetId, int] = {}
        spans = [*self._open(intents), *self._passed(log)]
        while torn := [span for span in spans if self._is_torn(span)]:
            for name, (start, _) in torn[0].items():
                if start < self._at[name]:
                    held[name] = self._at[name] = start
        return held

    def _is_torn(self, span: Spans) -> bool:
        is_begun = any(start < self._at[name] for name, (start, _) in span.items())
        return is_begun and any(self._at[name] < end for name, (_, end) in span.items())

    def _open(self, intents: Intents) -> Iterator[Spans]:
        """The transactions that no cut has passed; one that is open has no end yet."""
        now = {name: head.position for name, head in self._now.items()}
        for each in intents.values():
            if each.state is not IntentState.BROKEN:
                yield self._span(each.roots, now if each.state is IntentState.CLOSED else {})

    def _passed(self, log: CutLog) -> Iterator[Spans]:
        """The transactions that were shown first by the cut that first has what was there."""
        seen = {cut.number: cut for name in self._now if (cut := self._first_with(log, name)) is not None}
        for cut in seen.values():
            for roots in cut.transactions.values():
                yield self._span(roots, cut.positions)

    def _first_with(self, log: CutLog, name: DatasetId) -> Cut | None:
        """Return the first cut that has a root as far as it was at the moment."""
        if self._at[name] == NOTHING:
            return None
        return log.first(lambda cut: self._number(name, cut.positions.get(name)) >= self._at[name])

    def _span(
        self, roots: Mapping[DatasetId, Position | None], ends: Mapping[DatasetId, Position | None]
    ) -> Spans:
        return {
            name: (
                self._number(name, at),
                self._number(name, ends[name]) if name in ends else OFF_BRANCH,
            )
            for name, at in roots.items()
            if name in self._now
        }

    def _number(self, name: DatasetId, at: Position | None) -> int:
        """Return which block a position is; what a reset has cut off counts by its offset."""
        found = self._now[name].number_of(at)
        if found is not None or at is None:
            return NOTHING if found is None else found
        return self._now[name].branch.last_within(
            NOTHING if at.offset is None else at.offset, self._last(name)
        )

    def _last(self, name: DatasetId) -> int:
        tip = self._now[name].branch.tip
        return NOTHING if tip is None else tip.sequence_number
