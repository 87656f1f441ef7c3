"""Random programs with align points: drawn once, and built again in other ways that must mean the same."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.flow.oracle.operations import ONE, STEADY, TWO, WHY, WITHIN, same, shown
from tests.flow.oracle.structure import Shared, groups
from trueline.flow import Flow
from trueline.flow.graph import FlowNode

MEMBERS = 2


@dataclass(frozen=True)
class Step:
    """One thing a program does: what, with which earlier steps, and how."""

    what: str
    ins: tuple[int, ...] = ()
    how: tuple[Any, ...] = ()


@dataclass
class Plan:
    """A drawn program and what is sent to it."""

    seed: int
    cluster: bool
    ticks: int
    points: int
    steps: list[Step] = field(default_factory=list)
    sent: list[tuple[str, int, str]] = field(default_factory=list)
    """Source, member, element, in the order of sending."""

    @property
    def steady(self) -> bool:
        """Whether nothing that comes out depends on how often a tick runs."""
        inside = [step.how[0] for step in self.steps if step.what == "within"]
        return set(inside) <= STEADY and not any(
            s.what == "read" and s.how[2] == "before" for s in self.steps
        )


@dataclass(frozen=True)
class Variation:
    """Another way to build the same program."""

    without: frozenset[int] = frozenset()
    """Points that are left out: their uses become plain ones (A12, A13, A41)."""
    plain: frozenset[int] = frozenset()
    """Single uses that become plain ones (A41)."""
    shuffled: int | None = None
    """Declare things in another order, if they allow it (A40)."""
    spliced: int | None = None
    """Insert maps that change nothing, and split forks (A40)."""
    names: str = ""
    """Name everything anew (A40)."""


AS_DRAWN = Variation()


@dataclass
class Program:
    """A built program: the flow, and where its reads and releases come out."""

    plan: Plan
    flow: Flow
    reads: dict[str, FlowNode] = field(default_factory=dict)
    """Sink → the read whose values it shows."""
    acks: dict[str, FlowNode] = field(default_factory=dict)
    members: int = 1

    @cached_property
    def groups(self) -> list[Shared]:
        """What the rules make one cut of; only once all is built."""
        return groups(self.flow)


class Building:
    """Builds a program step by step."""

    def __init__(self, plan: Plan, how: Variation = AS_DRAWN) -> None:
        self.how = how
        self.plan = plan
        name = how.names
        self.flow = flow = Flow(f"{name}program {plan.seed}")
        self.far = flow.process(f"{name}far")
        self.place = flow.cluster(f"{name}server", MEMBERS) if plan.cluster else flow.process(f"{name}server")
        self.hub = flow.process(f"{name}hub")
        self.ticks = [self.place.tick(f"{name}tick{i}") for i in range(plan.ticks)]
        self.points = [self.place.local_align_point(f"{name}point{i}") for i in range(plan.points)]
        self.program = Program(plan, flow, members=self.place.size)
        self.made: dict[int, Any] = {}
        self._splices = random.Random(how.spliced)

    def add(self, number: int, step: Step) -> Any:
        """Do one step."""
        self.number = number
        ins = [self._spliced(self.made[i]) for i in step.ins]
        self.made[number] = made = getattr(self, f"_{step.what}")(*ins, *step.how)
        return made

    def _spliced(self, x: Any) -> Any:
        if self.how.spliced is not None and x.node.tick is None and self._splices.random() < 0.5:
            return x.map(same)
        return x

    def _is_plain(self, point: int) -> bool:
        return point in self.how.without or self.number in self.how.plain

    # --- the steps ----------------------------------------------------------------------

    def _source(self, name: str, ordered: bool, repeats: bool, far: bool) -> Any:
        place = self.far if far else self.place
        return place.source(name, ordered=ordered, at_least_once=repeats)

    def _send(self, x: Any, way: str) -> Any:
        if way == "send":
            return x.send(self.place)
        return (
            x.broadcast(self.place)
            if way == "broadcast"
            else x.demux(self.place, lambda e: int(e[-1]) % MEMBERS)
        )

    def _one(self, x: Any, name: str) -> Any:
        return ONE[name][1](x)

    def _two(self, x: Any, y: Any, name: str) -> Any:
        return TWO[name][1](x, y)

    def _tag(self, x: Any, point: int) -> Any:
        return x if point in self.how.without else x.aligned_at(self.points[point])

    def _pair(self, x: Any, y: Any) -> Any:
        return x.zip(y)

    def _read(self, x: Any, point: int, tick: int, side: str, sink: str) -> Any:
        t, p = self.ticks[tick], self.points[point]
        stream = "stream" in x.node.shape
        if self._is_plain(point):
            read = x.batch(t, WHY) if stream else x.snapshot(t, WHY)
        else:
            read = x.batch_aligned(t, p, WHY) if stream else x.snapshot_aligned(t, p, WHY, side)
        self.place.sink(sink, shown(read).all_ticks())
        self.program.reads[sink] = read.node
        return read

    def _leave(self, read: Any) -> Any:
        return read.all_ticks()

    def _release(self, x: Any, point: int, sink: str) -> Any:
        out = x if self._is_plain(point) else x.release_aligned(self.points[point])
        self.place.sink(sink, out)
        self.program.acks[sink] = out.node
        return out

    def _aside(self, x: Any, sink: str) -> None:
        tick = self.place.tick()
        read = x.batch(tick, WHY) if "stream" in x.node.shape else x.snapshot(tick, WHY)
        self.place.sink(sink, shown(read).all_ticks())

    def _ask(self, read: Any, tick: int, sink: str) -> None:
        asked = self.place.source(f"{sink} asked").batch(self.ticks[tick], WHY)
        self.place.sink(sink, asked.cross_singleton(read).all_ticks())

    def _within(self, read: Any, name: str, tick: int, sink: str) -> None:
        self.place.sink(sink, WITHIN[name][1](self.ticks[tick], read))

    def _gather(self, x: Any, sink: str) -> None:
        self.hub.sink(sink, x.gather(self.hub))


def build(plan: Plan, how: Variation = AS_DRAWN) -> Program:
    """Build a drawn program, in its own or in another way."""
    building = Building(plan, how)
    left = dict(enumerate(plan.steps))
    order = random.Random(how.shuffled)
    while left:
        ready = [i for i, step in left.items() if not any(j in left for j in step.ins)]
        number = ready[0] if how.shuffled is None else order.choice(ready)
        building.add(number, left.pop(number))
    return building.program


def draw(seed: int) -> Plan:
    """A random program."""
    return _Drawing(seed).plan


class _Drawing:
    """Draws step by step, looking at what has been made."""

    def __init__(self, seed: int) -> None:
        self.random = rng = random.Random(seed)
        cluster = rng.random() < 0.2
        self.plan = Plan(seed, cluster, ticks=rng.choice([1, 2, 2, 3, 3]), points=rng.choice([1, 1, 2]))
        self.building = Building(self.plan)
        self.pool: list[int] = []
        self._draw_sources()
        if len(self.pool) > 1 and rng.random() < 0.15:  # one constant for all: still nothing is shared (A34)
            self.pool = [self.step("one", (i,), ("configured",)) for i in self.pool]
        explicit = rng.random() < 0.2
        if explicit:
            for _ in range(rng.choice([1, 1, 2])):
                tagged = [self.step("tag", (i,), (rng.randrange(self.plan.points),)) for i in self.pool]
                self.pool = tagged if rng.random() < 0.8 else [*self.pool, *tagged]
        for _ in range(rng.randrange(1, 5)):
            self._draw_operator(self.pool)
        self.reads: list[tuple[int, int]] = []
        self._draw_uses()
        self._draw_others()

    def step(self, what: str, ins: tuple[int, ...] = (), how: tuple[Any, ...] = ()) -> int:
        number = len(self.plan.steps)
        step = Step(what, ins, how)
        self.building.add(number, step)
        self.plan.steps.append(step)
        return number

    def node(self, number: int) -> FlowNode:
        return self.building.made[number].node

    def _draw_sources(self) -> None:
        rng, cluster = self.random, self.plan.cluster
        sizes = rng.choice([(2,), (3,), (1, 2), (2, 1), (2, 2)])
        for name, size in zip("ab", sizes, strict=False):
            ordered, repeats, far = rng.random() < 0.7, rng.random() < 0.12, rng.random() < 0.3
            source = self.step("source", (), (name, ordered, repeats, far))
            if far:
                ways = ["broadcast", "demux"] if cluster else ["send"]
                for _ in range(rng.choice([1, 1, 2])):
                    self.pool.append(self.step("send", (source,), (rng.choice(ways),)))
            else:
                self.pool.append(source)
            elements = [f"{name}{i}" for i in range(size)]
            if repeats:
                elements.append(elements[0])
            members = range(MEMBERS) if cluster and not far else [0]
            self.plan.sent += [(name, m, e) for e in elements for m in members]
        rng.shuffle(self.plan.sent)
        self.plan.sent.sort(key=lambda each: each[2] if not repeats else "")

    def _draw_operator(self, pool: list[int]) -> None:
        rng = self.random
        x = rng.choice(
            [*pool, *pool[-1:]]
        )  # the newest twice: keyed operators need a keyed stream before them
        if rng.random() < 0.25:
            pairs = [
                (i, j, name)
                for name, (fits, _) in TWO.items()
                for i in pool
                for j in pool
                if i != j and fits(self.node(i), self.node(j))
            ]
            if pairs:
                rare = [each for each in pairs if each[2] == "join"]
                i, j, name = rng.choice(rare or pairs)
                pool.append(self.step("two", (i, j), (name,)))
                return
        names = [name for name, (fits, _) in ONE.items() if fits(self.node(x))]
        pool.append(self.step("one", (x,), (rng.choice(names),)))

    def _draw_uses(self) -> None:
        rng = self.random
        for point in range(self.plan.points):
            apart = self.plan.points > 1 and rng.random() < 0.7
            pool = self.pool
            if apart:  # a fork and ticks of its own, so that points need not overlap
                pool = [rng.choice(self.pool[-2:])]
                for _ in range(rng.randrange(1, 4)):
                    self._draw_operator(pool)
                pool = pool[1:]
            ticks = [point % self.plan.ticks] if apart else range(self.plan.ticks)
            for _ in range(rng.choice([1, 2, 2, 2, 3, 3])):
                self._draw_use(point, pool, rng.choice(ticks))

    def _draw_use(self, point: int, pool: list[int], tick: int) -> None:
        rng = self.random
        number = len(self.plan.steps)
        x = rng.choice(pool[-4:])
        singles = [i for i in pool if self.node(i).shape in ("singleton", "optional")]
        if len(singles) > 1 and rng.random() < 0.4:
            x = self.step("pair", tuple(rng.sample(singles, 2)))
        if "stream" in self.node(x).shape and rng.random() < 0.45:
            out = self.step("release", (x,), (point, f"ack{number}"))
            if rng.random() < 0.4:
                self.pool.append(out)  # what is released may be read with another point (A31)
            return
        value = "stream" not in self.node(x).shape
        side = "before" if value and rng.random() < 0.12 else "after"
        read = self.step("read", (x,), (point, tick, side, f"seen{number}"))
        self.reads.append((read, tick))
        if not value and rng.random() < 0.1:
            self.pool.append(self.step("leave", (read,)))  # what leaves a tick may come back (A25)

    def _draw_others(self) -> None:
        rng = self.random
        plain = [i for i in self.pool if self.plan.steps[i].what != "pair"]
        if rng.random() < 0.15:
            self.step("aside", (rng.choice(plain),), (f"aside{len(self.plan.steps)}",))
        if self.plan.cluster and rng.random() < 0.4:
            streams = [i for i in plain if self.node(i).shape == "stream"]
            if streams:
                self.step("gather", (rng.choice(streams),), (f"all{len(self.plan.steps)}",))
        if not self.reads:
            return
        read, tick = rng.choice(self.reads)
        if self.node(read).shape in ("singleton", "optional") and rng.random() < 0.3:
            sink = f"answer{len(self.plan.steps)}"
            self.step("ask", (read,), (tick, sink))
            self.plan.sent.append((f"{sink} asked", 0, "q0"))
        read, tick = rng.choice(self.reads)
        if rng.random() < 0.3:
            names = [name for name, (fits, _) in WITHIN.items() if fits(self.node(read))]
            self.step("within", (read,), (rng.choice(names), tick, f"extra{len(self.plan.steps)}"))
