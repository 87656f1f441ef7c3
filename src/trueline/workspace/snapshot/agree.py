"""Where datasets agree: the newest state, that of a moment or of a cut; or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from trueline.chain.branch import WENT_BACK, Branch
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.errors import CannotCompare, Diverged, InputError, NoCommonCut, RetryError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import Roots
from trueline.workspace.snapshot.histories import ChainHistory, Histories, look, with_absent
from trueline.workspace.snapshot.made_from import MadeFrom, Unlike, unlike
from trueline.workspace.snapshot.search import NOTHING, Cause, History, Search, grouped
from trueline.workspace.snapshot.snapshot import PrintedPosition, gone
from trueline.workspace.snapshot.transactions import between_transactions

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

# Each time the index of a dataset was found damaged and rebuilt, or a dataset was reset meanwhile.
_ATTEMPTS: Final = 16


@dataclass(frozen=True, slots=True)
class Agreement:
    """Datasets at events that agree, and all that they rest on; `asked` are those that are read."""

    asked: Mapping[DatasetId, Dataset]
    histories: Histories
    everything: Mapping[DatasetId, History[DatasetId]]
    search: Search[DatasetId]
    bounds: Mapping[DatasetId, int]

    @property
    def roots(self) -> list[DatasetId]:
        """The roots that they rest on."""
        return [name for name, history in self.histories.items() if not history.inputs]

    def number(self, name: DatasetId) -> int:
        """The event a dataset is at."""
        return self.search.at.get(name, NOTHING)

    def position(self, name: DatasetId) -> Position:
        """Where a dataset is."""
        return self.histories[name].position(self.number(name))

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The names of the datasets, together with those they share something with."""
        return grouped({dataset.name: self.below(asked) for asked, dataset in self.asked.items()})

    def below(self, name: DatasetId) -> set[DatasetId]:
        """A dataset and all that it rests on."""
        found, waiting = set[DatasetId](), [name]
        while waiting:
            if (each := waiting.pop()) not in found:
                found.add(each)
                waiting += self.everything[each].inputs
        return found

    @property
    def reads(self) -> dict[str, int]:
        """How many blocks and checkpoints were read, and how many events were looked at."""
        real = [each for each in self.everything.values() if isinstance(each, ChainHistory)]
        counted = {what: sum(each.reads[what] for each in real) for what in ("blocks", "checkpoints")}
        return {**counted, "steps": self.search.steps}


def agree(
    workspace: Workspace, datasets: Iterable[Dataset], *, moment: Instant | None = None, cut: Any = None
) -> Agreement:
    """Find the newest state at which datasets agree, by a moment, or the one at a cut."""
    asked: dict[DatasetId, Dataset] = {}
    for dataset in datasets:
        if (twin := asked.setdefault(dataset.id, dataset)) is not dataset:
            raise InputError(
                f"{twin.name!r} and {dataset.name!r} are copies of one dataset",
                remedy="name one of them",
                code="SameDataset",
            )
    for _ in range(_ATTEMPTS):
        try:
            found = _found(workspace, asked, moment, cut)
        except RetryError as error:
            if error.code != WENT_BACK:
                raise
            continue
        doubtful = [
            history
            for name, history in found.everything.items()
            if isinstance(history, ChainHistory) and not history.is_proven(found.number(name))
        ]
        if not doubtful:
            _refuse_unlike_copies(found)
            return found
        for history in doubtful:
            history.branch.chain.rebuild_index()
    raise RetryError(
        f"{', '.join(each.name for each in asked.values())}: datasets are reset again and again, or their "
        "indexes do not fit their blocks",
        remedy="nothing was changed; wait for the resets to end, then try again",
        code="HistoryBusy",
    )


def _found(
    workspace: Workspace, asked: Mapping[DatasetId, Dataset], moment: Instant | None, cut: Any
) -> Agreement:
    histories = look(Roots(workspace), asked, moment)
    if cut is not None:
        return _at_cut(workspace, asked, histories, cut)
    bounds: dict[DatasetId, int] = {}
    if sum(not histories[name].inputs for name in asked) > 1:
        histories, bounds = between_transactions(workspace, asked, moment)
    found = _searched(asked, histories, bounds)
    if (refusal := _refusal(found)) is not None:
        raise refusal
    return found


def _searched(
    asked: Mapping[DatasetId, Dataset], histories: Histories, bounds: Mapping[DatasetId, int]
) -> Agreement:
    everything = with_absent(histories)
    search = Search(everything)
    search.run(dict.fromkeys(asked) | dict(bounds))
    return Agreement(asked, histories, everything, search, bounds)


# --- at a cut -----------------------------------------------------------------------------


def _at_cut(
    workspace: Workspace, asked: Mapping[DatasetId, Dataset], histories: Histories, cut: Any
) -> Agreement:
    """Find where datasets were at a cut; under earlier definitions, if they were not there under these."""
    wanted = _numbers(workspace, histories, cut)
    first: Agreement | None = None
    while True:
        found = _searched(asked, histories, wanted)
        late = [name for name, number in wanted.items() if not _is_at(found, name, number)]
        lost = [name for name in asked if found.number(name) == NOTHING]
        if not late and (not lost or _refusal(found) is None):
            return found
        first = first or found
        earlier = _with_earlier_definition(histories)
        if earlier is None:
            raise _never_there(first, wanted, cut)
        histories = earlier


def _with_earlier_definition(histories: Histories) -> Histories | None:
    """Return the datasets as they were before the last of their definitions; None if there is no earlier."""
    for name in sorted(histories, key=lambda name: _defined_at(histories[name]), reverse=True):
        earlier = histories[name].before_definition() if histories[name].inputs else None
        if earlier is not None:
            return histories | {name: earlier}
    return None


def _defined_at(history: ChainHistory) -> int:
    """When a dataset that is computed here was defined."""
    return history.branch.at(history.definition).time_us if history.inputs else NOTHING


def _is_at(found: Agreement, name: DatasetId, number: int) -> bool:
    history, at = found.histories[name], found.number(name)
    has = NOTHING if at == NOTHING else history.offset(at)
    return has == (NOTHING if number == NOTHING else history.offset(number))


def _numbers(workspace: Workspace, histories: Histories, cut: Any) -> dict[DatasetId, int]:
    """Return the event of each root at a cut: by its number, as a value, or as root → offset."""
    roots = {name: history for name, history in histories.items() if not history.inputs}
    if isinstance(cut, int) and not isinstance(cut, bool):
        cut = CutLog.of(workspace).cut(cut)
    if isinstance(cut, Cut):
        positions = {name: cut.positions.get(name) for name in roots}
        return {name: _number(roots[name], at) for name, at in positions.items()}
    if not isinstance(cut, Mapping):
        raise InputError(
            f"{cut!r:.80} is not a cut",
            remedy="give its number, or the offset of each root: {'sales': 41}",
            code="BadCut",
        )
    offsets = {_id_of(workspace, name): offset for name, offset in cut.items()}
    names = ", ".join(repr(each.dataset.name) for each in roots.values())
    for name, history in roots.items():
        if name not in offsets:
            raise InputError(
                f"the cut does not say where {history.dataset.name!r} is",
                remedy=f"give the offset of each root: {names}",
                code="BadCut",
            )
    return {name: _at_offset(history, offsets[name]) for name, history in roots.items()}


def _id_of(workspace: Workspace, name: str) -> DatasetId:
    return name if isinstance(name, DatasetId) else workspace[name].id


def _number(history: ChainHistory, at: Position | None) -> int:
    if at is None:
        return NOTHING
    found = history.branch.find(at.block)
    if found is None:
        raise gone(history.dataset.name, at.block)
    return found.sequence_number


def _at_offset(history: ChainHistory, offset: object) -> int:
    if isinstance(offset, Position):
        return _number(history, offset)
    if isinstance(offset, PrintedPosition):
        return _printed(history, offset)
    if offset is None or offset == NOTHING:
        return NOTHING
    if type(offset) is not int or offset < 0:
        raise InputError(f"{offset!r:.80} is not an offset", remedy="give a whole number", code="BadCut")
    number = history.readable(history.last_within(offset, history.readable()))
    if number == NOTHING or history.offset(number) != offset:
        raise InputError(
            f"no commit of {history.dataset.name!r} ends at offset {offset:,}",
            remedy="give the offset a commit ends at, as a snapshot shows it",
            code="BadCut",
            dataset=history.dataset.name,
            offset=offset,
        )
    return number


def _printed(history: ChainHistory, at: PrintedPosition) -> int:
    """Return the commit that was printed; others that add no rows may end at its offset too."""
    number = history.readable(history.last_within(at.offset, history.readable()))
    while number != NOTHING and history.offset(number) == at.offset:
        if history.branch.at(number).hash.endswith(at.block):
            return number
        number = history.readable(number - 1)
    raise gone(history.dataset.name, at.block)


def _never_there(found: Agreement, wanted: Mapping[DatasetId, int], cut: Any) -> InputError:
    """Say who was never at rest at a cut."""
    cause = _refusal(found)
    late = [found.histories[name].dataset.name for name, at in wanted.items() if not _is_at(found, name, at)]
    names = ", ".join(repr(dataset.name) for dataset in found.asked.values())
    number = cut.number if isinstance(cut, Cut) else cut
    shown = f"cut {number:,}" if isinstance(number, int) and number else "that cut"
    why = f": {cause.problem}" if cause is not None else f" (they are not where it has {', '.join(late)})"
    return NoCommonCut(
        f"{names} were never all at {shown}{why}",
        remedy=cause.remedy if cause is not None else "pull them, or give a cut that a pull has reached",
        in_shell="" if cause is None else cause.in_shell,
        dataset=next(iter(found.asked.values())).name,
        source=late[0] if late else None,
    )


# --- why not ------------------------------------------------------------------------------


def _refusal(found: Agreement) -> InputError | None:
    """Say why datasets agree nowhere, None if they do; those that have nothing to show do."""
    lost = [
        name
        for name in found.asked
        if found.number(name) == NOTHING and not _is_empty(found, name) and found.bounds.get(name) != NOTHING
    ]
    if not lost:
        return None
    for name, history in found.histories.items():
        if history.inputs and history.readable() == NOTHING and not _is_empty(found, name):
            return _not_pulled(found, name)
    at_nothing = {
        name: found.search.conflicts[name]
        for name in found.histories
        if found.number(name) == NOTHING and name in found.search.conflicts
    }
    for cause in (Cause.DIVERGED, Cause.REDEFINED, Cause.AHEAD):
        for name, conflict in at_nothing.items():
            if conflict.cause is cause:
                return _conflicting(found, name, cause, conflict.source, conflict.block)
    return _conflicting(found, lost[0], Cause.AHEAD, lost[0], None)


def _is_empty(found: Agreement, name: DatasetId) -> bool:
    """Say whether a dataset and all it rests on have no data yet."""
    below = (found.histories[each] for each in found.below(name) if each in found.histories)
    return all(history.readable() == NOTHING for history in below)


def _not_pulled(found: Agreement, name: DatasetId) -> NoCommonCut:
    history = found.histories[name]
    called = history.dataset.name
    tail = history.branch.tail
    again = tail is not None and tail.data is not None
    return NoCommonCut(
        f"{called!r} {'was defined anew and not pulled since' if again else 'has not been pulled yet'}: "
        "there is no state at which it agrees with what it is made from",
        remedy=f"ws.pull({called!r}), then try again",
        in_shell=f"trueline pull {quote(called)}, then try again",
        dataset=called,
        source=None,
    )


def _conflicting(
    found: Agreement, name: DatasetId, cause: Cause, source: DatasetId, block: Multihash | None
) -> InputError:
    called, other = _called(found, name), _called(found, source)
    commit = "" if block is None else f" commit {block.short}"
    if cause is Cause.DIVERGED and (later := _later(found, source, block)) is not None:
        return _not_yet(found, name, source, later)
    if cause is Cause.DIVERGED:
        return Diverged(
            f"{called!r} has read{commit} of {other!r}, which is not on its branch: {other!r} was reset, or "
            "is a copy that is behind",
            remedy=f"pull {other!r} if it is a copy; else ws[{called!r}].reset(rebuild=True), and pull: it "
            "is computed again from what is there",
            in_shell=f"pull {quote(other)} if it is a copy; else trueline reset {quote(called)} --rebuild, "
            "and pull: it is computed again from what is there",
            dataset=called,
            source=other,
            block=block,
        )
    if cause is Cause.REDEFINED:
        problem = f"{called!r} was made under an earlier definition of {other!r}, and has not followed yet"
    else:
        problem = f"{called!r} and {other!r} were never at one state"
    names = [dataset.name for dataset in found.asked.values()]
    return NoCommonCut(
        problem,
        remedy=f"ws.pull({', '.join(map(repr, names))}), then try again",
        in_shell=f"trueline pull {' '.join(map(quote, names))}, then try again",
        dataset=called,
        source=other,
        block=block,
    )


def _later(found: Agreement, source: DatasetId, block: Multihash | None) -> Instant | None:
    """Return when a block was recorded that a dataset was looked at without; None if a reset cut it off."""
    there = found.histories.get(source)
    entry = None if there is None or block is None else Branch.of(there.branch.chain).find(block)
    return None if entry is None else Instant(entry.time_us * 1000)


def _not_yet(found: Agreement, name: DatasetId, source: DatasetId, later: Instant) -> NoCommonCut:
    """Say that the clocks of who wrote two datasets differ: one has read what the other has only later."""
    names = [dataset.name for dataset in found.asked.values()]
    return NoCommonCut(
        f"at that time {_called(found, name)!r} had read a commit of {_called(found, source)!r} that is "
        f"dated {later}: by another clock, or while a pull was under way",
        remedy=f"give a later time: ws.snapshot({', '.join(map(repr, names))}, at={str(later)!r})",
        in_shell=f"give a later time: trueline snapshot {' '.join(map(quote, names))} --at {later}",
        dataset=_called(found, name),
        source=_called(found, source),
    )


def _called(found: Agreement, name: DatasetId) -> str:
    return found.histories[name].dataset.name if name in found.histories else str(name)


def _refuse_unlike_copies(found: Agreement) -> None:
    """Refuse copies that were made from another state of what is not here, as far as that can be known."""
    copies = {
        name: found.histories[name].made_from(number)
        for name, history in found.histories.items()
        if history.is_copy and not history.inputs and (number := found.number(name)) != NOTHING
    }
    for name, made in copies.items():
        _refuse_unlike_here(found, name, made)
    pair = unlike({name: made.without(found.histories) for name, made in copies.items()})
    if pair is not None:
        raise _unlike(found, pair)


def _refuse_unlike_here(found: Agreement, name: DatasetId, made: MadeFrom) -> None:
    """Refuse a copy that is not where the others are, though the search could not hold it to that.

    What it rested on before an ancestor was defined anew need not be what it rests on since.
    """
    for source, at in made.positions.items():
        there, number = found.histories.get(source), found.number(source)
        has = NOTHING if there is None or number == NOTHING else there.offset(number)
        if at is not None and there is not None and there.offset_of(at.block, NOTHING) != has:
            raise _conflicting(found, name, Cause.AHEAD, source, at.block)
    for source, block in made.definitions.items():
        there = found.histories.get(source)
        if there is not None and source != name and there.definition_block != block:
            raise _conflicting(found, name, Cause.REDEFINED, source, block)


def _unlike(found: Agreement, pair: Unlike) -> CannotCompare:
    one, other, source = (_called(found, name) for name in (pair.one, pair.other, pair.source))
    which = "under different definitions" if pair.is_definition else "at different commits"
    where = "" if pair.source in found.histories else ", which is not here"
    return CannotCompare(
        f"{one!r} and {other!r} were made from {source}{where}, {which}: whether they agree cannot be known",
        remedy=f"ws.pull({one!r}, {other!r}) brings both copies up to date; else clone that dataset here",
        in_shell=f"trueline pull {quote(one)} {quote(other)}, or clone that dataset here",
        datasets=(one, other),
        source=str(pair.source),
    )
