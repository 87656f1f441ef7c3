"""Everybody at once, in every order: appends, transactions, pulls, readers, waiters, gc, and crashes."""

from __future__ import annotations

import random
import time

import pytest

from tests.workspace.snapshot.orders import expire, finish, one_of_them, schedules
from tests.workspace.snapshot.protocol import (
    BANK,
    World,
    Wrong,
    agreeing,
    collecting,
    defined,
    event_at,
    origin_of,
    pulling,
    reading,
    recording,
    resetting,
    transaction,
    waiting,
)
from trueline.workspace.pull.stops import related

pytestmark = pytest.mark.contract("cut:P13")
SMALL = ("transfers", "credits", "debits", "balances")


def bank(*names):
    """A world in which everything was pulled once; commits have two blocks."""
    world = World({name: BANK[name] for name in names or BANK})
    for name in world.inputs:
        if world.inputs[name]:
            world.define(name, 1)
        else:
            world.commit(name, 2)
    finish(world, pulling(world, world.derived))
    return world


def append(root):
    yield lambda world: world.commit(root, 2)


def redefine(name):
    yield lambda world: world.define(name, 2)


def agreed(world):
    """Whoever was pulled beside whom, there is a common cut, and it is not older than the laggard."""
    groups = related({name: world.roots(name) for name in world.derived})
    definitions = {name: defined(world.chains[name]) for name in world.derived}
    for group in {frozenset({name, *others}) for name, others in groups.items()}:
        rests = {}
        for name in group:
            cuts = [cut.number for cut in world.cuts[1:] if is_at(world, name, cut, definitions, newest=True)]
            if not cuts:
                break  # it was defined anew, or reset, and not pulled since
            rests[name] = cuts[0]
        else:
            both = [
                cut.number
                for cut in world.cuts[1:]
                if all(is_at(world, name, cut, definitions) for name in group)
            ]
            if not both or both[-1] < min(rests.values()):
                raise Wrong(f"the newest common cut is {both[-1:]}, older than the laggard: {rests}")
            if finish(world, agreeing(world, sorted(group))) is None:
                raise Wrong("there is a common cut that the search does not find")


def is_at(world, name, cut, definitions, *, newest=False):
    """Say whether a dataset has been at rest at a cut, or is so now."""
    origin, under = origin_of(world, name, cut, definitions)
    blocks = world.chains[name]
    found = event_at(blocks, origin, under, world)
    return found is not None and (not newest or found == [b for b in blocks if b.is_data][-1])


def settled(world, mutant=""):
    """Whatever has happened, one pull that nobody disturbs brings everything to the heads."""
    if world.has_reset:
        return  # a pull refuses until what has read it is reset too
    expire(world)
    graph = world
    finish(world, pulling(graph, graph.derived, mutant))
    found = finish(world, agreeing(graph, graph.derived))
    if found is None:
        raise Wrong("after a pull of all there is no common cut")
    _, at = found
    for root in {each for name in graph.derived for each in graph.roots(name)}:
        assert at[root] == len(world.chains[root]) - 1, "a pull does not reach the head"
    finish(world, reading(graph, tuple(graph.derived)))


def all_orders(world, cast, mutant="", **more):
    def at_end(world):
        if not world.has_reset:
            agreed(world)
        settled(world, mutant)

    return schedules(world, cast, at_end, **more)


FX = ("transfers", "fx", "credits", "worth")
CASTS = {
    "an append, a pull of one, a reader": (
        SMALL,
        1,
        lambda w: [append("transfers"), pulling(w, ["credits"]), reading(w, ("credits", "debits"))],
    ),
    "an append, a pull of all, a reader of all": (
        SMALL,
        1,
        lambda w: [append("transfers"), pulling(w, ["balances"]), reading(w, SMALL[1:])],
    ),
    "pulls of one each, two who append": (
        ("transfers", "credits", "debits"),
        0,
        lambda w: [
            append("transfers"),
            append("transfers"),
            *(pulling(w, [name]) for name in ("credits", "debits")),
        ],
    ),
    "pulls of one each, two who append, one who dies": (
        ("transfers", "credits", "debits"),
        1,
        lambda w: [append("transfers"), pulling(w, ["credits"]), pulling(w, ["debits"])],
    ),
    "three who record a cut, two who append": (
        ("transfers", "credits"),
        0,
        lambda w: [append("transfers"), append("transfers"), *(recording(["transfers"]) for _ in range(3))],
    ),
    "a transaction and a pull of which one dies": (
        FX,
        1,
        lambda w: [transaction("transfers", "fx"), pulling(w, ["worth"])],
    ),
    "a transaction and two who record": (
        ("transfers", "fx", "credits", "rates"),
        0,
        lambda w: [transaction("transfers", "fx"), recording(["transfers"]), recording(["fx"])],
    ),
    "a waiter and a pull": (
        SMALL,
        1,
        lambda w: [waiting(w, "transfers", ("credits", "debits")), pulling(w, ["credits", "debits"])],
    ),
    "a definition, a pull, a reader": (
        SMALL,
        1,
        lambda w: [redefine("credits"), pulling(w, ["balances"]), reading(w, ("credits", "balances"))],
    ),
    "a reset, gc, a reader": (
        ("transfers", "credits"),
        1,
        lambda w: [resetting("transfers", 2), collecting(), reading(w, ("transfers", "credits"))],
    ),
    "a reset, gc, a reader of a root": (
        ("transfers", "credits"),
        1,
        lambda w: [resetting("transfers", 2), append("transfers"), collecting(), reading(w, ("transfers",))],
    ),
}


@pytest.mark.parametrize("name", CASTS)
def test_no_order_tears_a_reading_or_a_cut_or_acknowledges_too_early(name):
    datasets, crashes, cast = CASTS[name]
    found = all_orders(bank(*datasets), cast, crashes=crashes)
    assert found.ends > 1


# The same with more of everybody: minutes.
LARGE = {
    "two pullers of one each, a reader": (
        ("transfers", "credits", "debits"),
        0,
        lambda w: [
            append("transfers"),
            pulling(w, ["credits"]),
            pulling(w, ["debits"]),
            reading(w, ("credits", "debits")),
        ],
    ),
    "a waiter and two pullers": (
        ("transfers", "credits", "debits"),
        0,
        lambda w: [
            waiting(w, "transfers", ("credits", "debits")),
            pulling(w, ["credits"]),
            pulling(w, ["debits"]),
        ],
    ),
    "three pullers of which one dies": (
        ("transfers", "credits"),
        1,
        lambda w: [append("transfers"), *(pulling(w, ["credits"]) for _ in range(3))],
    ),
    "two pullers of one each, a reader that reads twice": (
        ("transfers", "credits", "debits"),
        1,
        lambda w: [
            append("transfers"),
            pulling(w, ["credits"]),
            pulling(w, ["debits"]),
            reading(w, ("credits", "debits"), 2),
        ],
    ),
    "gc, a puller, a reset, a reader": (
        ("transfers", "credits"),
        1,
        lambda w: [
            append("transfers"),
            resetting("transfers", 2),
            pulling(w, ["credits"]),
            collecting(),
            reading(w, ("transfers", "credits")),
        ],
    ),
    "a transaction, a pull, a reader": (
        FX,
        1,
        lambda w: [transaction("transfers", "fx"), pulling(w, ["worth"]), reading(w, ("credits", "worth"))],
    ),
    "a transaction, an append, two pullers, a reader": (
        FX,
        0,
        lambda w: [
            transaction("transfers", "fx"),
            append("fx"),
            pulling(w, ["credits"]),
            pulling(w, ["worth"]),
            reading(w, ("credits", "worth")),
        ],
    ),
}


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", LARGE)
def test_no_order_of_more_of_them_does_either(name):
    datasets, crashes, cast = LARGE[name]
    assert all_orders(bank(*datasets), cast, crashes=crashes, most=3_000_000).ends > 1


# Casts of which chance chooses orders: all of them would be too many.
CROWDS = {
    "gc, two pullers, a reset, a reader": (
        ("transfers", "credits", "debits"),
        lambda w: [
            append("transfers"),
            resetting("transfers", 2),
            pulling(w, ["credits"]),
            pulling(w, ["debits"]),
            collecting(),
            collecting(),
            reading(w, ("transfers", "credits", "debits"), 2),
        ],
    ),
    "gc, a puller, a definition, a reader": (
        SMALL,
        lambda w: [
            append("transfers"),
            redefine("credits"),
            pulling(w, ["balances"]),
            collecting(),
            reading(w, ("transfers", "credits", "debits"), 2),
        ],
    ),
    "three pullers, a transaction, a reader": (
        (*FX, "rates"),
        lambda w: [
            transaction("transfers", "fx"),
            append("fx"),
            pulling(w, ["credits"]),
            pulling(w, ["rates"]),
            pulling(w, ["worth"]),
            reading(w, ("credits", "worth", "rates"), 2),
        ],
    ),
    "everybody": (
        tuple(BANK),
        lambda w: [
            transaction("transfers", "fx"),
            append("transfers"),
            *(pulling(w, [name]) for name in ("balances", "worth", "rates")),
            collecting(),
            waiting(w, "transfers", ("credits", "debits")),
            reading(w, ("balances", "worth", "rates")),
        ],
    ),
}


def crowded(name, chance, mutant=""):
    datasets, cast = CROWDS[name]

    def at_end(world):
        if not world.has_reset:
            agreed(world)
        settled(world)

    def with_mutant(world):
        return [*cast(world), reading(world, SMALL[:3], 2, mutant)] if mutant else cast(world)

    one_of_them(bank(*datasets), with_mutant, at_end, chance=chance, crashes=chance.randint(0, 2))


@pytest.mark.parametrize("name", CROWDS)
def test_no_order_of_a_crowd_does_either(name):
    chance = random.Random(15)
    for _ in range(200):
        crowded(name, chance)


@pytest.mark.parametrize("mutant", ["heads", "no lease"])
def test_some_order_of_a_crowd_shows_each_mistake(mutant):
    chance, crowd = random.Random(16), next(iter(CROWDS))
    with pytest.raises(Wrong, match={"heads": "torn reading", "no lease": "was collected"}[mutant]):
        for _ in range(2_000):
            crowded(crowd, chance, mutant)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", CROWDS)
def test_no_order_of_a_crowd_does_for_long(name, soak_minutes):
    seed, end = random.SystemRandom().randrange(1 << 40), time.monotonic() + 60 * soak_minutes
    chance = random.Random(seed)
    try:
        while time.monotonic() < end:
            crowded(name, chance)
    except BaseException as error:
        error.add_note(f"again: chance = random.Random({seed})")
        raise


MUTANTS = {
    "heads": (
        "torn reading",
        SMALL,
        lambda w: [
            append("transfers"),
            pulling(w, ["credits"]),
            reading(w, ("credits", "debits"), mutant="heads"),
        ],
    ),
    "ack at the cut": (
        "acknowledged",
        SMALL,
        lambda w: [
            waiting(w, "transfers", ("credits", "debits"), "ack at the cut"),
            pulling(w, ["credits", "debits"]),
        ],
    ),
    "inside a commit": (
        "inside of a commit",
        SMALL,
        lambda w: [append("transfers"), pulling(w, ["credits"], "inside a commit")],
    ),
    "origin without definitions": (
        "no common cut",
        SMALL,
        lambda w: [redefine("credits"), pulling(w, ["credits"], "origin without definitions")],
    ),
    "heads before the number": (
        "goes back",
        ("transfers", "credits"),
        lambda w: [
            append("transfers"),
            pulling(w, ["credits"], "heads before the number"),
            pulling(w, ["credits"], "heads before the number"),
        ],
    ),
    "intents once": (
        "part of a transaction",
        FX,
        lambda w: [transaction("transfers", "fx"), pulling(w, ["worth"], "intents once")],
    ),
    **{
        mutant: (
            "older than the laggard",
            ("transfers", "credits", "debits"),
            lambda w, mutant=mutant: [
                append("transfers"),
                append("transfers"),
                *(pulling(w, [name], mutant) for name in ("credits", "debits")),
            ],
        )
        for mutant in ("says nothing", "looks before it speaks", "goes on for nobody")
    },
    "no lease": (
        "was collected",
        ("transfers", "credits"),
        lambda w: [resetting("transfers", 2), collecting(), reading(w, ("transfers",), mutant="no lease")],
    ),
    "lease not checked": (
        "was collected",
        ("transfers", "credits"),
        lambda w: [
            resetting("transfers", 2),
            collecting(),
            reading(w, ("transfers",), mutant="lease not checked"),
        ],
    ),
    "pins are not read": (
        "was collected",
        ("transfers", "credits"),
        lambda w: [
            resetting("transfers", 2),
            collecting("pins are not read"),
            reading(w, ("transfers",)),
        ],
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_some_order_shows_each_mistake(mutant):
    what, datasets, cast = MUTANTS[mutant]
    with pytest.raises(Wrong, match=what):
        all_orders(bank(*datasets), cast, mutant if mutant == "origin without definitions" else "")
