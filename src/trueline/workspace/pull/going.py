"""Where a pull stops on its way, for those that are at rest and for those that are on their way too.

Who is pulled at the same moment is not yet where it will be. So each pull first says which datasets it brings
to which cut, by an object beside the cuts,

    going/3f…    {"cut": 7, "datasets": ["did:odf:fed01…"], "expires": "2026-11-13T10:00:00Z"}

and only then looks: at what others have said, and after that at heads. It stops where others are and where
they are going. Where another is further it goes on to there, says so and looks again.

Of any two pulls the one that looked last saw where the other was going. If it goes further it stops there;
if it went less far it would have gone on. So all have stopped at the earliest cut that one of them went to.
What a process that died has left costs others a stop, and is passed over after a day.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trueline.chain.instant import Instant
from trueline.errors import CorruptionError, InputError, OutcomeUnknown, RetryError, StoreError
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.dependencies import Dependencies
from trueline.workspace.derive.rest import RootOrder, left_at, newest_cut_at
from trueline.workspace.pull.stops import NOWHERE, plan_stops, related
from trueline.workspace.small_objects import SmallObjects

if TYPE_CHECKING:
    from trueline.workspace.workspace import Workspace

Stops = Mapping[str, Sequence[Cut]]
_FOLDER: Final = "going"
_SECONDS: Final = 86_400
_SECOND: Final = 1_000_000_000
# Each time somebody else went further meanwhile.
_ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True)
class Going:
    """That a pull brings datasets, by their ids, to a cut; `name` is the object that says so."""

    name: str
    cut: int
    datasets: frozenset[str]


class GoingTo:
    """What the pulls of a workspace that are under way have said."""

    def __init__(self, objects: SmallObjects) -> None:
        self._objects = objects

    @classmethod
    def of(cls, workspace: Workspace) -> GoingTo:
        """Return those of a workspace."""
        return cls(workspace._location.cuts())

    def say(self, cut: int, datasets: Iterable[str]) -> Going:
        """Say where datasets go."""
        said = Going(secrets.token_hex(16), cut, frozenset(datasets))
        expires = Instant(Instant.now() + _SECONDS * _SECOND)
        document = {"cut": cut, "datasets": sorted(said.datasets), "expires": str(expires)}
        raw = json.dumps(document, sort_keys=True).encode() + b"\n"
        self._objects.put_new(f"{_FOLDER}/{said.name}", raw, durable=False)
        return said

    def forget(self, said: Going) -> None:
        """Take back what was said; what cannot be removed costs others a stop."""
        with suppress(StoreError, OutcomeUnknown):
            self._objects.remove(f"{_FOLDER}/{said.name}")

    def read(self) -> list[Going]:
        """Return what was said and not taken back; what has expired is removed."""
        now = Instant.now()
        found: list[Going] = []
        for name in self._objects.names(_FOLDER):
            raw = self._objects.read(f"{_FOLDER}/{name}").raw
            said = None if raw is None else _parsed(name, raw, now)
            if said is not None:
                found.append(said)
            elif raw is not None:
                self.forget(Going(name, NOWHERE, frozenset()))
        return found


def _parsed(name: str, raw: bytes, now: Instant) -> Going | None:
    """Return what an object says; None if that has expired, or was cut short as it was put."""
    try:
        document = json.loads(raw)
        if Instant.parse(document["expires"]) < now:
            return None
        return Going(name, int(document["cut"]), frozenset(map(str, document["datasets"])))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        return None


@contextmanager
def going_to(
    place: GoingTo, log: CutLog, known: Dependencies, names: Sequence[str], cut: Cut
) -> Iterator[dict[str, list[Cut]]]:
    """Say where datasets go, look around, and give the cuts at which each stops; others see it until the end.

    The last of them is the cut, or a later one to which others go or have gone meanwhile.
    """
    others = _others(known)
    ids = [str(known[name].id) for name in names if others[name]]
    said: Going | None = None
    try:
        for _ in range(_ATTEMPTS):
            before, said = said, place.say(cut.number, ids) if ids else None
            if before is not None:
                place.forget(before)
            there = [] if said is None else [each for each in place.read() if each != said]
            look = _Look.of(log, known, names, cut, there)
            if look.furthest <= cut.number:
                break
            cut = log.cut(look.furthest)
        else:
            raise RetryError(
                f"others have gone further {_ATTEMPTS} times in a row",
                remedy="nothing was changed; pull again",
                code="PullsBusy",
            )
        yield look.stops(cut)
    finally:
        if said is not None:
            place.forget(said)


def stops_to(
    log: CutLog, known: Dependencies, names: Sequence[str], target: Cut, going: Iterable[Going] = ()
) -> dict[str, list[Cut]]:
    """Return the cuts at which each dataset would stop on its way to the last, by rule R."""
    return _Look.of(log, known, names, target, going).stops(target)


@dataclass(frozen=True)
class _Look:
    """Where the datasets are that some have to do with, or where they go; those that go have names too."""

    log: CutLog
    known: Dependencies
    names: Sequence[str]
    others: Mapping[str, frozenset[str]]
    at: Mapping[str, int]

    @classmethod
    def of(
        cls, log: CutLog, known: Dependencies, names: Sequence[str], target: Cut, going: Iterable[Going]
    ) -> _Look:
        order = RootOrder({node.id: node.dataset.chain for node in known.nodes.values() if node.id})
        others = _others(known)
        needed = {each for name in names for each in (name, *others[name])}
        at = {name: _rests_at(log, known, name, order, target) for name in needed}
        named = {str(node.id): name for name, node in known.nodes.items()}
        seen = {name: set(others[name]) for name in names}
        for each in going:
            if each.cut > target.number and each.cut > log.newest().number:
                continue  # there is no such cut
            moving, who = {named[dataset] for dataset in each.datasets if dataset in named}, f"/{each.name}"
            for name in names:
                if moving & others[name]:
                    seen[name].add(who)
                    at[who] = each.cut
        return cls(log, known, names, {name: frozenset(them) for name, them in seen.items()}, at)

    @property
    def furthest(self) -> int:
        """The newest cut at which one of them is, or to which one goes."""
        return max(self.at.values(), default=NOWHERE)

    def stops(self, target: Cut) -> dict[str, list[Cut]]:
        inputs = {name: [each for each in self.known.needs(name) if each in self.at] for name in self.names}
        planned = plan_stops(self.at, self.others, inputs, self.names, target.number)
        return {
            name: [target if number == target.number else self.log.cut(number) for number in planned[name]]
            for name in self.names
        }


def _others(known: Dependencies) -> dict[str, frozenset[str]]:
    return related({name: known.roots(name) for name, node in known.nodes.items() if node.is_computed})


def _rests_at(log: CutLog, known: Dependencies, name: str, order: RootOrder, target: Cut) -> int:
    """Return the newest cut at which a dataset is at rest, as its newest transaction says.

    Of one that is damaged nobody can say, and nobody stops for it (derive:V20).
    """
    with suppress(CorruptionError, InputError):
        return _newest_rest(log, known, name, order, target)
    return NOWHERE


def _newest_rest(log: CutLog, known: Dependencies, name: str, order: RootOrder, target: Cut) -> int:
    chain = known[name].dataset.chain
    tail = chain.tail()
    left = left_at(chain, tail) if tail is not None else None
    if left is None or not left.at_rest or known[name].own_cuts:
        return NOWHERE
    roots = left.origin.roots
    if all(target.positions.get(root) == at for root, at in roots.items()):
        return target.number
    limits = {root: at for root, at in target.positions.items() if root in roots}
    if limits.keys() == roots.keys() and order.is_within(roots, limits):
        return newest_cut_at(log, roots, order, target.number - 1)
    # Somebody else has brought it further meanwhile.
    return newest_cut_at(log, roots, order, log.newest().number)
