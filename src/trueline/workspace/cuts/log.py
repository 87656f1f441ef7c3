"""The log of cuts: numbers that are given once, whoever pulls, from whichever machine.

A cut is an object that is put if it is absent, beside the datasets:

    cut/7               a cut; 1 to the newest, without gaps
    folded/1            cuts 1 to 1,000 in one object; their own objects are removed when it is there
    reached/7/fed01…    that a dataset has come to rest at cut 7: a hint, put after its head moved
    transactions        intents that hold roots back
    newest              a number that was the newest lately: a hint

Recording reads the newest number k, then the heads, then puts k + 1 if it is absent, and begins again if it
is not: otherwise numbers would go back in content.

Whether a number is there is asked of its own object first and then of the folded one. Since that is put
before the others are removed, nobody misses a number. A process that slept after it had asked, while more
than a thousand cuts were recorded and folded, might put a number that was removed. So it looks for the folded
object after its put and, if that is there, takes its own object away and begins again; readers believe the
folded object first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from trueline.chain.branch import WENT_BACK
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.chain.store.folders import MAX_SMALL_BYTES
from trueline.errors import InputError, OutcomeUnknown, RetryError, StoreError, TruelineError
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.cuts.copies import Groups, agreeing_positions
from trueline.workspace.cuts.cut import Before, Cut, fold_cuts, unfold_cuts
from trueline.workspace.cuts.roots import RootHead, Roots, heads_of
from trueline.workspace.cuts.transaction import Intent, IntentDocument, Intents, IntentState
from trueline.workspace.locations import cuts_damaged
from trueline.workspace.small_objects import SmallObjects
from trueline.workspace.snapshot.made_from import ChainOf

if TYPE_CHECKING:
    from trueline.workspace.workspace import Workspace

FOLD: Final = 1_000
_HINT_EVERY: Final = 16
_KEPT: Final = 64
_CUT, _FOLDED, _REACHED, _NEWEST = "cut", "folded", "reached", "newest"
_ID: Final = "did:odf:"
# Each attempt that fails means that somebody else's succeeded.
_ATTEMPTS: Final = 1000


class CutLog:
    """The cuts of a workspace; one of them may be used by one thread at a time.

    >>> import tempfile, pyarrow as pa, trueline as tl
    >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
    ...     sales = ws.create("sales")
    ...     log = CutLog.of(ws)
    ...     commit = sales.append(pa.table({"price": [9.5, 12.0]}))
    ...     cut = log.record([sales.id])
    ...     again = log.record([sales.id])
    ...     cut.number, again.number, cut[sales.id].block == commit.block, log.cut(1) == log.newest()
    (1, 1, True, True)
    """

    def __init__(
        self, objects: SmallObjects, chain_of: ChainOf, clock: Callable[[], Instant] = Instant.now
    ) -> None:
        self._objects = objects
        self._chain_of = chain_of
        self._clock = clock
        self.intents = IntentDocument(objects, clock)
        # The highest number that is known to be there, and the highest that no power cut can take back.
        self._seen = self._durable = 0
        self._known: dict[int, Cut] = {}

    @classmethod
    def of(cls, workspace: Workspace) -> CutLog:
        """Open the log of a workspace; nothing is made before the first cut."""
        return cls(
            workspace._location.cuts(), Roots(workspace).chain_of, clock=workspace.clock or Instant.now
        )

    # --- reading ----------------------------------------------------------------------

    def newest(self) -> Cut:
        """Return the newest cut; the one without positions and with the number 0 if there is none."""
        number, raw = self._find_newest()
        if not number:
            return Cut()
        if number not in self._known and raw is not None:
            self._keep(Cut.from_bytes(raw, self._path(_CUT, number), number))
        return self.cut(number)

    def cut(self, number: int) -> Cut:
        """Return a cut by its number."""
        if number in self._known:
            return self._known[number]
        found = self._read(number) if number > 0 else None
        if found is None:
            newest = self.newest().number
            raise InputError(
                f"there is no cut {number:,} in {self._objects.location}",
                remedy=f"give a number up to the newest: {newest}" if newest else "pull something first",
                code="CutNotFound",
                number=number,
            )
        return self._keep(found)

    def cuts(self, after: int = 0, upto: int | None = None) -> Iterator[Cut]:
        """Iterate over the cuts with after < number <= upto (the newest), in order."""
        last = self.newest().number if upto is None else upto
        number = after + 1
        while number <= last:
            raw = self._objects.read(_name(_FOLDED, _first(number))).raw
            if raw is None:
                yield self.cut(number)
                number += 1
                continue
            for each in self._unfolded(raw, _first(number)):
                if number <= each.number <= last:
                    yield each
            number = _first(number) + FOLD

    def first(self, fits: Callable[[Cut], bool]) -> Cut | None:
        """Return the first cut that fits, None if none does; what fits once fits from then on."""
        low, high = 0, self.newest().number + 1
        last = high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(self.cut(middle)) else (middle, high)
        return None if high == last else self.cut(high)

    def _read(self, number: int) -> Cut | None:
        # Folded first: an own object may be one that somebody put too late.
        folded = _name(_FOLDED, _first(number))
        raw = self._objects.read(folded).raw
        if raw is None:
            own = self._objects.read(_name(_CUT, number)).raw
            if own is not None:
                return Cut.from_bytes(own, self._path(_CUT, number), number)
            # It may have been folded between the two looks.
            raw = self._objects.read(folded).raw
        if raw is None:
            return None
        return next(each for each in self._unfolded(raw, _first(number)) if each.number == number)

    def _unfolded(self, raw: bytes, first: int) -> Iterator[Cut]:
        return unfold_cuts(raw, self._path(_FOLDED, first), first, FOLD)

    def _keep(self, cut: Cut) -> Cut:
        self._known[cut.number] = cut
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return cut

    def _path(self, *parts: object) -> str:
        return f"{self._objects.location}/{'/'.join(map(str, parts))}"

    # --- the newest number ------------------------------------------------------------

    def _find_newest(self) -> tuple[int, bytes | None]:
        """Return the newest number and, if it was read on the way, its bytes.

        From a number that is there the steps double until one is not there: there are no gaps.
        """
        low, raw = self._seen, None
        if not low and (hint := self._hint()) and (found := self._look(hint)) is not None:
            low, raw = hint, found
        step, seen = 1, {low: raw}
        while (found := self._look(low + step)) is not None:
            low += step
            seen[low] = found
            step *= 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            if (found := self._look(middle)) is None:
                high = middle
            else:
                low = middle
                seen[low] = found
        self._seen = low
        return low, seen[low] or None

    def _look(self, number: int) -> bytes | None:
        """Return the bytes of a cut, none of them if it is folded; None if there is no such number."""
        own = self._objects.read(_name(_CUT, number)).raw
        if own is not None:
            return own
        return b"" if self._is_folded(number) else None

    def _is_folded(self, number: int) -> bool:
        return self._objects.read(_name(_FOLDED, _first(number))).raw is not None

    def _hint(self) -> int:
        with suppress(TruelineError):
            raw = self._objects.read(_NEWEST).raw
            if raw is not None and len(raw) < 20 and raw.isdigit():
                return int(raw)
        return 0

    # --- recording --------------------------------------------------------------------

    def record(self, roots: Iterable[DatasetId], groups: Groups = ()) -> Cut:
        """Return a cut with these roots where they are now; a new number is given only if one has moved.

        The heads of these roots are read, and of those that a transaction joins to them; all others keep
        their positions. Roots that an open transaction has joined are taken where they were before it.
        Copies of derived datasets that are in one of the `groups` are taken where they agree.
        """
        wanted = frozenset(roots)
        for _ in range(_ATTEMPTS):
            try:
                found = self._attempt(wanted, groups)
            except RetryError as error:
                if error.code != WENT_BACK:
                    raise
                continue
            if found is not None:
                return found
        raise RetryError(
            f"{_ATTEMPTS:,} cuts in a row were recorded by others in {self._objects.location}",
            remedy="nothing was changed; try again",
            code="CutsBusy",
        )

    def preview(self, roots: Iterable[DatasetId], groups: Groups = ()) -> Cut:
        """Return the cut that `record` would return now; nothing is recorded, so its number is a guess."""
        last, intents = self.newest(), self.intents.read()
        heads = heads_of(self._chain_of, _joined(frozenset(roots), intents))
        plan = CutPlan.of(last, heads, intents, intents, groups, chain_of=self._chain_of)
        return plan.cut(self._clock()) if plan.moves else last

    def _attempt(self, wanted: frozenset[DatasetId], groups: Groups) -> Cut | None:
        """Record a cut; None if somebody else was faster, so that everything begins again."""
        # The order is what keeps cuts from going back: the number, then intents, heads, intents again.
        last = self.newest()
        before = self.intents.settled(named=last.broken)
        heads = heads_of(self._chain_of, _joined(wanted, before))
        plan = CutPlan.of(last, heads, before, self.intents.read(), groups, chain_of=self._chain_of)
        if not plan.moves:
            if last.number > self._durable:
                self._objects.settle(_CUT)
                self._durable = last.number
            self._passed(plan)
            return last
        cut = plan.cut(self._clock())
        if len(cut.to_bytes()) > MAX_SMALL_BYTES:
            cut = replace(cut, transactions={})
        number, data = cut.number, cut.to_bytes()
        if len(data) > MAX_SMALL_BYTES:
            raise InputError(
                f"a cut of {len(cut):,} roots has {len(data):,} bytes, at most {MAX_SMALL_BYTES:,} are kept",
                remedy="keep the datasets in several workspaces",
                code="TooManyRoots",
            )
        if not self._objects.put_new(_name(_CUT, number), data):
            return None
        if self._is_folded(number):
            self._objects.remove(_name(_CUT, number))
            return None
        self._seen = self._durable = number
        self._keep(cut)
        self._passed(plan)
        self._after(number)
        return cut

    def _passed(self, plan: CutPlan) -> None:
        """Forget the transactions that a cut has passed; where that fails the next cut does it."""
        with suppress(RetryError, OutcomeUnknown):
            self.intents.forget(plan.passed)

    def _after(self, number: int) -> None:
        """Put the hint from time to time, and fold; the cut is recorded whatever becomes of that."""
        with suppress(StoreError, OutcomeUnknown):
            if number % _HINT_EVERY == 0:
                self._objects.put(_NEWEST, str(number).encode())
            if number % FOLD == 0:
                self.fold()

    # --- folding ----------------------------------------------------------------------

    def fold(self) -> int:
        """Fold all thousands but the last whole one and what follows it; returns how many were folded."""
        limit = (self.newest().number // FOLD - 1) * FOLD
        own = [int(name) for name in self._objects.names(_CUT) if name.isdecimal()]
        firsts = sorted({_first(number) for number in own if 0 < number <= limit})
        done = sum(self._fold(first) for first in firsts)
        if done:
            self._forget_reached(limit)
            self._objects.tidy(_CUT)
        return done

    def _fold(self, first: int) -> bool:
        numbers = range(first, first + FOLD)
        if not self._is_folded(first):
            found = [self._read(number) for number in numbers]
            cuts = [cut for cut in found if cut is not None]
            if len(cuts) != FOLD:
                raise cuts_damaged(self._path(_CUT), f"of the cuts from {first:,} on some are missing")
            data = fold_cuts(cuts)
            if len(data) > MAX_SMALL_BYTES:
                return False  # so many roots move in each of them that nothing would be gained
            # The cuts' own objects are removed next: what takes their place says the same.
            assert [each.to_bytes() for each in self._unfolded(data, first)] == [c.to_bytes() for c in cuts]
            self._objects.put_new(_name(_FOLDED, first), data)
        self._objects.remove(*(_name(_CUT, number) for number in numbers))
        return True

    def _forget_reached(self, limit: int) -> None:
        names = self._objects.names(_REACHED)
        old = [name for name in names if (of := name.partition("/")[0]).isdecimal() and int(of) <= limit]
        self._objects.remove(*(_name(_REACHED, name) for name in old))

    # --- who has come to rest where -----------------------------------------------------

    def put_reached(self, number: int, dataset: DatasetId) -> None:
        """Say that a dataset has come to rest at a cut, after its head was moved: a hint for who waits."""
        name = f"{number}/{dataset.removeprefix(_ID)}"
        self._objects.put_new(_name(_REACHED, name), b"\n", durable=False)

    def reached(self, number: int) -> frozenset[DatasetId]:
        """Return the datasets that have come to rest at a cut, as they said; their heads decide."""
        found: set[DatasetId] = set()
        for name in self._objects.names(_name(_REACHED, number)):
            with suppress(InputError):
                found.add(DatasetId.parse(_ID + name))
        return frozenset(found)


def _name(folder: str, name: object) -> str:
    return f"{folder}/{name}"


def _first(number: int) -> int:
    """Return the first number of the thousand that a number is in."""
    return (number - 1) // FOLD * FOLD + 1


def _joined(wanted: frozenset[DatasetId], intents: Intents) -> frozenset[DatasetId]:
    """Add the roots that transactions which are not open any more join to those that are wanted."""
    found, ended = set(wanted), [set(each.roots) for each in intents.values() if _has_ended(each)]
    while more := [roots for roots in ended if roots & found and not roots <= found]:
        found.update(*more)
    return frozenset(found)


def _has_ended(intent: Intent) -> bool:
    return intent.state is not IntentState.OPEN


@dataclass(frozen=True, slots=True)
class CutPlan:
    """Where the next cut takes each root that was looked at."""

    last: Cut
    heads: Mapping[DatasetId, RootHead]
    positions: Mapping[DatasetId, Position | None]
    ended: tuple[Intent, ...]

    @classmethod
    def of(
        cls,
        last: Cut,
        heads: Mapping[DatasetId, RootHead],
        before: Intents,
        after: Intents,
        groups: Groups = (),
        *,
        chain_of: ChainOf = lambda _: None,
    ) -> CutPlan:
        """Plan from what was found: the intents before and after the heads were read."""
        concerned = [each for each in after.values() if any(root in heads for root in each.roots)]
        free = [e for e in concerned if _has_ended(e) and (was := before.get(e.id)) and _has_ended(was)]
        holding = [each for each in concerned if each not in free]
        # A transaction of which one root is held is held as a whole, or it would be torn.
        while torn := [e for e in free if any(root in other.roots for other in holding for root in e.roots)]:
            holding += torn
            free = [each for each in free if each not in torn]
        positions = agreeing_positions(heads, groups, chain_of)
        for root, head in heads.items():
            passed, found = head.number_of(last.positions.get(root)), head.number_of(positions[root])
            if passed is not None and found is not None and found < passed:
                positions[root] = last[root]  # what a cut has passed it has passed
            held = [each.roots[root] for each in holding if root in each.roots]
            if held:
                positions[root] = _held(head, last.positions.get(root), held)
        return cls(last, heads, positions, tuple(free))

    @property
    def moves(self) -> frozenset[DatasetId]:
        """The roots that are not where the last cut has them."""
        last = self.last.positions
        return frozenset(root for root, at in self.positions.items() if last.get(root) != at)

    @property
    def broken(self) -> tuple[str, ...]:
        """The transactions that did not finish and of which this cut is the first to show something."""
        halves = [each for each in self.ended if each.state is IntentState.BROKEN]
        return tuple(sorted(each.id for each in halves if self._shows(each)))

    @property
    def transactions(self) -> dict[str, Before]:
        """Those over several roots that finished, and of which this cut is the first to show something."""
        done = [each for each in self.ended if each.state is IntentState.CLOSED and len(each.roots) > 1]
        return {each.id: dict(each.roots) for each in done if self._shows(each)}

    def _shows(self, intent: Intent) -> bool:
        return any(
            self.positions[root] not in (at, self.last.positions.get(root))
            for root, at in intent.roots.items()
            if root in self.positions
        )

    @property
    def passed(self) -> tuple[str, ...]:
        """The transactions that need not be known any more once this cut is recorded.

        One that did not finish is kept until a cut has named it; the next one forgets it.
        """
        return tuple(each.id for each in self.ended if each.state is IntentState.CLOSED)

    def cut(self, now: Instant) -> Cut:
        """Return the cut, with the next number."""
        last, moves = self.last, self.moves
        time = now if last.time is None else max(now, last.time)
        positions = dict(last.positions)
        reset: set[DatasetId] = set()
        for root in moves:
            at, head = self.positions[root], self.heads[root]
            if at is None:
                positions.pop(root, None)
            else:
                positions[root] = at
                time = head.time_of(at.block, time)
            was = last.positions.get(root)
            if was is not None and (at is None or head.number_of(was) is None):
                reset.add(root)
        number, reset_now = last.number + 1, frozenset(reset)
        return Cut(positions, number, time, reset_now, self.broken, transactions=self.transactions)


def _held(head: RootHead, last: Position | None, before: list[Position | None]) -> Position | None:
    """Return where a root is held: where it was before the first of its transactions, or the last cut is.

    What a cut has passed it has passed; a root that was reset since is held at what is left of it.
    """
    numbered = [(number, at) for at in before if (number := head.number_of(at)) is not None]
    if len(numbered) < len(before):
        return last  # a reset has cut off where it was
    number, earliest = min(numbered, key=lambda pair: pair[0])
    was = head.number_of(last) if last is not None else -1
    return last if was is not None and was >= number else earliest
