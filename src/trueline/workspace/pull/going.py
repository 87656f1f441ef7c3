"""Where a pull stops on its way, for those that are at rest and for those that are on their way too.

Who is pulled at the same moment is not yet where it will be. So each pull first says which datasets it brings
to which cut, by an object beside the cuts,

    going/3f…    {"cut": 7, "datasets": ["did:odf:fed01…"], "expires": "2026-11-13T10:00:00Z"}

and only then looks: at what others have said, and after that at heads. It stops where others are and where
they are going. Where another is further it goes on to there, says so and looks again.

Of any two pulls the one that looked last saw where the other was going. If it goes further it stops there;
if it went less far it would have gone on. So all have stopped at the earliest cut that one of them went to.
Who was defined while a pull was under way is not known to it: so it stops where others bring what it brings.
What a process that died has left costs others a stop, and is passed over after a day.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trueline.chain.checkpoint import DerivedCheckpoint
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.errors import CorruptionError, InputError, OutcomeUnknown, RetryError, StoreError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.dependencies import Dependencies
from trueline.workspace.derive.rest import Origins, RootOrder, left_at, newest_cut_at, rest_at
from trueline.workspace.pull.stops import NOWHERE, neighbours, plan_stops, related
from trueline.workspace.small_objects import SmallObjects

if TYPE_CHECKING:
    from trueline.workspace.workspace import Workspace

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


@dataclass(frozen=True)
class Route:
    """The cuts at which each dataset stops; `along` are those that nobody named, with the new ones they join.

    The first of a dataset that joins strangers comes after the last of those that come along with it: as soon
    as it is there, there is a cut at which it can be read with them.
    """

    stops: Mapping[str, Sequence[Cut]]
    along: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def before(self, name: str) -> frozenset[str]:
        """The datasets that come along with a new one."""
        return frozenset(each for each, joined in self.along.items() if name in joined)


@contextmanager
def going_to(
    place: GoingTo, log: CutLog, known: Dependencies, names: Sequence[str], cut: Cut
) -> Iterator[Route]:
    """Say where datasets go, look around, and give the cuts at which each stops; others see it until the end.

    The last of them is the cut, or a later one to which others go or have gone meanwhile.
    """
    # Those that have to do with nobody say it too: somebody may just be defining what joins them with others.
    going = frozenset(names)
    said: Going | None = None
    try:
        for _ in range(_ATTEMPTS):
            ids = [str(known[name].id) for name in going]
            before, said = said, place.say(cut.number, ids) if ids else None
            if before is not None:
                place.forget(before)
            there = [] if said is None else [each for each in place.read() if each != said]
            look = _Look.of(log, known, names, cut, there)
            if look.furthest <= cut.number and going >= look.along.keys():
                break
            going |= look.along.keys()
            cut = log.cut(max(look.furthest, cut.number))
        else:
            raise RetryError(
                f"others have gone further {_ATTEMPTS} times in a row",
                remedy="nothing was changed; pull again",
                code="PullsBusy",
            )
        yield look.route(cut)
    finally:
        if said is not None:
            place.forget(said)


def route_to(
    log: CutLog, known: Dependencies, names: Sequence[str], target: Cut, going: Iterable[Going] = ()
) -> Route:
    """Return the cuts at which each dataset would stop on its way to the last, by rule R."""
    return _Look.of(log, known, names, target, going).route(target)


@dataclass(frozen=True)
class _Look:
    """Where the datasets are that some have to do with, or where they go; those that go have names too."""

    log: CutLog
    known: Dependencies
    names: Sequence[str]
    others: Mapping[str, frozenset[str]]
    at: Mapping[str, int]
    along: Mapping[str, frozenset[str]]
    joining: frozenset[str]

    @classmethod
    def of(
        cls, log: CutLog, known: Dependencies, names: Sequence[str], target: Cut, going: Iterable[Going]
    ) -> _Look:
        order = RootOrder({node.id: node.dataset.chain for node in known.nodes.values() if node.id})
        concerned = _others(known)
        needed = sorted({each for name in names for each in (name, *concerned[name])})
        left = {name: _left(known, name) for name in needed}
        is_new = {name: _is_new(known, name, left[name]) for name in needed}
        at = {
            name: NOWHERE if known[name].own_cuts else _rests_at(log, left[name], order, target)
            for name in needed
        }
        movers = _movers(log, known, needed, target, going)

        def was_at(name: str, number: int) -> bool:
            return not movers and _was_at(known, name, log.cut(number))

        new = {name: known.roots(name) for name in names if is_new[name]}
        there = {name: known.roots(name) for name in needed if not is_new[name]}
        others, joined = neighbours(new, there, at, was_at)
        along = _along(known, names, joined)
        everyone = known.in_order([*names, *along]) if along else names
        seen = {name: set(others.get(name, ())) for name in everyone}
        for each, moving in movers.items():
            who = f"/{each.name}"
            for name in everyone:
                if moving & {name, *concerned[name]}:
                    seen[name].add(who)
                    at[who] = each.cut
        stops_for = {name: frozenset(them) for name, them in seen.items()}
        return cls(log, known, everyone, stops_for, at, along, frozenset(joined))

    @property
    def furthest(self) -> int:
        """The newest cut at which one of them is, or to which one goes."""
        return max(self.at.values(), default=NOWHERE)

    def route(self, target: Cut) -> Route:
        inputs = {name: [each for each in self.known.needs(name) if each in self.at] for name in self.names}
        planned = plan_stops(self.at, self.others, inputs, self.names, target.number, joining=self.joining)
        stops = {
            name: [target if number == target.number else self.log.cut(number) for number in planned[name]]
            for name in self.names
        }
        return Route(stops, self.along)


def _movers(
    log: CutLog, known: Dependencies, names: Collection[str], target: Cut, going: Iterable[Going]
) -> dict[Going, frozenset[str]]:
    """Return the pulls that bring some datasets somewhere, and which they bring of those that are known."""
    named = {str(node.id): name for name, node in known.nodes.items()}
    found = {each: frozenset(named[id_] for id_ in each.datasets if id_ in named) for each in going}
    newest = log.newest().number if found else 0
    return {
        each: moving
        for each, moving in found.items()
        # Of a number that is not there nobody can say where it is.
        if each.cut <= max(target.number, newest) and not moving.isdisjoint(names)
    }


def _along(
    known: Dependencies,
    names: Sequence[str],
    joined: Mapping[str, Iterable[str]],
) -> dict[str, frozenset[str]]:
    """Return the datasets that come along though nobody named them, each with the new ones that join it.

    One that rests on what was defined anew waits until that is pulled.
    """
    with_whom: dict[str, set[str]] = {}
    for name, members in joined.items():
        for each in members:
            if each not in names:
                with_whom.setdefault(each, set()).add(name)
    while stuck := [name for name in with_whom if not _can_come(known, name, {*names, *with_whom})]:
        for name in stuck:
            del with_whom[name]
    return {name: frozenset(new) for name, new in with_whom.items()}


def _can_come(known: Dependencies, name: str, moving: Collection[str]) -> bool:
    return all(each in moving or known[each].is_root for each in known.inputs(name))


def _others(known: Dependencies) -> dict[str, frozenset[str]]:
    return related({name: known.roots(name) for name, node in known.nodes.items() if node.is_computed})


def _left(known: Dependencies, name: str) -> DerivedCheckpoint | None:
    """Return what the newest transaction of a dataset left.

    Of one that is damaged nobody can say, and nobody stops for it (derive:V20).
    """
    with suppress(CorruptionError, InputError):
        chain = known[name].dataset.chain
        tail = chain.tail()
        return left_at(chain, tail) if tail is not None else None
    return None


def _is_new(known: Dependencies, name: str, left: DerivedCheckpoint | None) -> bool:
    """Say whether a dataset has nothing yet under the definitions in force, its own and those above it."""
    return left is None or left.origin.definitions != _definitions(known, name)


def _definitions(known: Dependencies, name: str) -> dict[DatasetId, Multihash]:
    found: dict[DatasetId, Multihash] = {}
    waiting = [name]
    while waiting:
        node = known[waiting.pop()]
        if node.id is not None and node.definition is not None and node.id not in found:
            found[node.id] = node.definition
            above = known.inputs(node.name)
            waiting += [each for each in above if each not in node.own_cuts and not known[each].is_root]
    return found


def _was_at(known: Dependencies, name: str, cut: Cut) -> bool:
    """Say whether a dataset was at rest at a cut, and what it rests on too."""
    origins = Origins(known, cut)
    with suppress(RetryError, CorruptionError, InputError):
        return rest_at(known[name].dataset, origins.of(name), origins.order) is not None
    return False


def _rests_at(log: CutLog, left: DerivedCheckpoint | None, order: RootOrder, target: Cut) -> int:
    """Return the newest cut at which a dataset is at rest, as its newest transaction says."""
    if left is not None and left.at_rest:
        with suppress(CorruptionError, InputError):
            return _newest_rest(log, left.origin.roots, order, target)
    return NOWHERE


def _newest_rest(log: CutLog, roots: Mapping[DatasetId, Position], order: RootOrder, target: Cut) -> int:
    if all(target.positions.get(root) == at for root, at in roots.items()):
        return target.number
    limits = {root: at for root, at in target.positions.items() if root in roots}
    if limits.keys() == roots.keys() and order.is_within(roots, limits):
        return newest_cut_at(log, roots, order, target.number - 1)
    # Somebody else has brought it further meanwhile.
    return newest_cut_at(log, roots, order, log.newest().number)
