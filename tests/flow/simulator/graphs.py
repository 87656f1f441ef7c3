"""Random flows with random align points, whose elements carry the tags of what they were made from.

An element is a sorted tuple of tags, a tag is (source, number). Every operator keeps tags: a filter decides
by the tag alone, so of each collection it is known which tags it lets through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from trueline.flow import Flow, nondet

WHY = nondet("the oracle holds for every choice")

Tag = tuple[str, int]
Element = tuple[Tag, ...]


def joined(a: Element, b: Element) -> Element:
    return tuple(sorted({*a, *b}))


def parity(element: Element) -> int:
    return element[0][1] % 2


def checked_pair(pair: tuple[Element, Element]) -> Element:
    return joined(*pair)


@dataclass(frozen=True)
class Piece:
    """A stream, and what is known of it: which tags it lets through, and whether all of those (`strict`)."""

    live: Any
    kept: Callable[[Tag], bool]
    strict: bool
    roots: frozenset[Any]

    def lets(self, tag: Tag) -> bool:
        """Whether a tag comes through."""
        return tag[0] in self.roots and self.kept(tag)

    def of(self, live: Any, **changed: Any) -> Piece:
        parts = {"kept": self.kept, "strict": self.strict, "roots": self.roots, **changed}
        return Piece(live, **parts)


@dataclass(frozen=True)
class Use:
    """One use of a point and the sink that shows it."""

    kind: str
    sink: str
    point: str
    piece: Piece
    side: str = "after"


@dataclass
class Program:
    """A flow, how to feed it, and its uses of align points."""

    flow: Flow
    sources: list[str]
    uses: list[Use] = field(default_factory=list)


class Maker:
    """Makes one program out of a random source."""

    ticks_at_most = 2
    things_beside = True
    before_the_cut = 0.2

    def __init__(self, random: Random, sources: int = 3) -> None:
        self.random = random
        self.flow = Flow("random")
        self.home = self.flow.process("home")
        self.away = self.flow.process("away")
        self.crew = self.flow.cluster("crew", 2)
        self.program = Program(self.flow, [])
        self.ticks = [self.home.tick(f"tick {n}") for n in range(random.randint(1, self.ticks_at_most))]
        self.most = sources
        self.sinks = 0

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    # --- streams ------------------------------------------------------------------------

    def source(self) -> Piece:
        name = f"s{len(self.program.sources)}"
        self.program.sources.append(name)
        place = self.away if self.chance(0.15) else self.home
        live = place.source(name, ordered=self.chance(0.7), at_least_once=self.chance(0.15))
        piece = Piece(live, lambda tag: True, True, frozenset([name]))
        if place is self.away:
            piece = piece.of(live.send(self.home))
        elif self.chance(0.15):
            sent = live.broadcast(self.crew) if self.chance(0.5) else live.demux(self.crew, parity)
            piece = piece.of(sent.gather(self.home).values())
        return piece

    def grown(self, piece: Piece, steps: int) -> Piece:
        for _ in range(steps):
            piece = self.random.choice(self.ways(piece))(piece)
        return piece

    def ways(self, piece: Piece) -> list[Callable[[Piece], Piece]]:
        node = piece.live.node
        found = [
            self.mapped,
            self.filtered,
            self.doubled,
            self.by_key,
            self.crossed,
            self.uniquely,
            self.ordered,
        ]
        if node.ordered and node.once:
            found.append(self.numbered)
        if not node.once:
            found.append(lambda p: p.of(p.live.assume_exactly_once(WHY)))
        return found

    def mapped(self, piece: Piece) -> Piece:
        return piece.of(piece.live.map(tuple))

    def filtered(self, piece: Piece) -> Piece:
        rest = self.random.randint(0, 2)
        before = piece.kept
        live = piece.live.filter(lambda x: any(number % 3 != rest for _, number in x))
        return piece.of(live, kept=lambda tag: before(tag) and tag[1] % 3 != rest)

    def doubled(self, piece: Piece) -> Piece:
        return piece.of(piece.live.flat_map(lambda x: [x, x]))

    def uniquely(self, piece: Piece) -> Piece:
        return piece.of(piece.live.unique())

    def ordered(self, piece: Piece) -> Piece:
        return piece.of(piece.live.assume_ordering(WHY))

    def numbered(self, piece: Piece) -> Piece:
        return piece.of(piece.live.enumerate().map(lambda pair: pair[1]))

    def crossed(self, piece: Piece) -> Piece:
        one = self.home.singleton("constant")
        return piece.of(piece.live.cross_singleton(one).map(lambda pair: pair[0]))

    def by_key(self, piece: Piece) -> Piece:
        if self.chance(0.3):
            keyed = piece.live.map(lambda x: (parity(x), x)).into_keyed()
        else:
            keyed = piece.live.key_by(parity)
        keyed = self.random.choice(
            [
                lambda k: k,
                lambda k: k.map(tuple),
                lambda k: k.filter(bool),
                lambda k: k.flat_map(lambda x: [x]),
                lambda k: k.unique(),
            ]
        )(keyed)
        return piece.of(keyed.values() if self.chance(0.5) else keyed.entries().map(lambda pair: pair[1]))

    def together(self, a: Piece, b: Piece) -> Piece:
        """Two streams as one."""
        kept = lambda tag: a.lets(tag) or b.lets(tag)  # noqa: E731
        strict, roots = a.strict and b.strict, a.roots | b.roots
        how = self.random.randint(0, 2)
        if how == 0 and a.live.node.ordered and b.live.node.ordered:
            return Piece(a.live.merge_ordered(b.live, WHY), kept, strict, roots)
        if how == 1:
            pairs = a.live.key_by(parity).join(b.live.key_by(parity)).values()
            return Piece(pairs.map(checked_pair), kept, False, roots)
        if how == 2 and self.chance(0.3):
            return Piece(a.live.key_by(parity).union(b.live.key_by(parity)).values(), kept, strict, roots)
        return Piece(a.live.union(b.live), kept, strict, roots)

    # --- values -------------------------------------------------------------------------

    def value(self, piece: Piece) -> Piece:
        """A live value that holds the tags of all that has arrived."""
        node = piece.live.node
        ways = ["commutative", "reduce", "keyed", "keyed reduce"]
        if node.ordered and node.once:
            ways += ["fold", "fold", "keyed fold"]
        way = self.random.choice(ways)
        live = piece.live
        if way == "fold":
            return piece.of(live.fold((), joined))
        if way == "commutative":
            return piece.of(live.fold_commutative(tuple, joined, joined, idempotent=True))
        if way == "reduce":
            return piece.of(live.reduce(joined, commutative=True, idempotent=True))
        if way == "keyed reduce":
            return piece.of(live.key_by(parity).reduce(joined, commutative=True, idempotent=True))
        if way == "keyed fold":
            return piece.of(live.key_by(parity).fold(tuple, joined))
        return piece.of(live.key_by(parity).fold_commutative((), joined, idempotent=True))

    def changed(self, value: Piece) -> Piece:
        """The value, changed a little."""
        shape = value.live.node.shape
        if self.chance(0.3):
            return value.of(value.live.map(tuple))
        if shape == "optional" and self.chance(0.5):
            return value.of(value.live.unwrap_or(()))
        if self.chance(0.2):
            return value.of(value.live.filter(bool))
        return value

    def paired(self, a: Piece, b: Piece) -> Piece:
        """Two live values as one, which is only sound where they are aligned."""
        if "keyed singleton" in (a.live.node.shape, b.live.node.shape):
            return a
        # An optional that is absent hides the other, so what is seen may be less.
        strict = a.strict and b.strict and a.live.node.shape == b.live.node.shape == "singleton"
        kept = lambda tag: a.lets(tag) or b.lets(tag)  # noqa: E731
        return Piece(a.live.zip(b.live).map(checked_pair), kept, strict, a.roots | b.roots)

    # --- ends ---------------------------------------------------------------------------

    def shown(self, stream: Any) -> str:
        self.sinks += 1
        name = f"out{self.sinks}"
        self.home.sink(name, stream)
        return name

    def in_tick(self, stream: Any, tick: Any) -> Any:
        """A batch in its tick, gone through something that keeps all of it."""
        node = stream.node
        ways = [
            lambda s: s,
            lambda s: s.sort(),
            lambda s: s.assume_ordering(WHY),
            lambda s: s.unique(),
            lambda s: s.key_by(parity).values(),
            lambda s: s.key_by(parity).fold_commutative((), joined, idempotent=True).values(),
            lambda s: s.fold_commutative((), joined, idempotent=True).into_stream(),
            lambda s: s.reduce(joined, commutative=True, idempotent=True).into_stream(),
            lambda s: s.cross_singleton(self.home.singleton(1)).map(lambda pair: pair[0]),
            lambda s: self.through(s, tick),
        ]
        if node.ordered:
            ways.append(lambda s: s.merge_ordered(self.home.stream_of([]), WHY))
        return self.random.choice(ways)(stream)

    def through(self, stream: Any, tick: Any) -> Any:
        """Through a reference that is completed in the same execution."""
        handle, later = tick.forward_ref(ordered=False)
        handle.complete(stream.unique() if not stream.node.once else stream)
        return later

    def beside(self, stream: Any, tick: Any) -> None:
        """Something else that is made of a batch: shown, and nothing is claimed of it."""
        if not self.things_beside:
            return
        way = self.random.randint(0, 9)
        if way == 0:
            self.shown(stream.defer_tick().all_ticks())
        elif way == 1:
            counted = (stream if stream.node.once else stream.unique()).count()
            later, before = tick.state(0)
            total = before.zip(counted).map(sum)
            later.complete(total)
            self.shown(total.all_ticks())
        elif way == 2:
            handle, before = tick.cycle(ordered=False)
            both = before.union(stream.unique()).unique()
            handle.complete(both)
            self.shown(both.all_ticks())
        elif way == 3 and stream.node.ordered:
            self.shown(stream.first().all_ticks())
            # In a tick of its own: one that waits for its own first result never runs.
            apart = self.home.tick(f"apart {self.sinks}")
            self.shown(stream.last().latest().snapshot(apart, WHY).into_stream().all_ticks())
        elif way == 4:
            keyed = stream.unique().key_by(parity)
            self.shown(keyed.keys().all_ticks())
            self.shown(keyed.count().join(keyed.count()).get(1).into_stream().all_ticks())
            self.shown(keyed.join(keyed).defer_tick().all_ticks())
        elif way == 5:
            whole = stream.fold_commutative((), joined, idempotent=True)
            self.shown(whole.defer_tick().unwrap_or(()).cross_singleton(whole).all_ticks())
        elif way == 6:
            counts = stream.unique().key_by(parity).count()
            self.shown(counts.map(lambda n: n + 1).filter(bool).defer_tick().keys().all_ticks())
            self.shown(counts.entries().all_ticks())
        elif way == 7:
            handle, newest = tick.optional_state()
            last = stream.reduce(joined, commutative=True, idempotent=True)
            handle.complete(last)
            self.shown(newest.filter(bool).all_ticks())

    def read_value(self, value: Any) -> Any:
        """A snapshot as a stream of the tags it holds."""
        if value.node.shape == "keyed singleton":
            way = self.random.randint(0, 2)
            if way == 0:
                return value.values()
            return value.entries().map(lambda pair: pair[1])
        return value.into_stream()

    def use(self, piece: Piece, point: Any, kind: str, other: Piece | None = None) -> None:
        tick = self.random.choice(self.ticks)
        if kind == "release":
            sink = self.shown(piece.live.release_aligned(point))
            self.program.uses.append(Use(kind, sink, point.name, piece))
        elif kind == "batch":
            batch = piece.live.batch_aligned(tick, point, WHY)
            self.beside(batch, tick)
            sink = self.shown(self.in_tick(batch, tick).all_ticks())
            self.program.uses.append(Use(kind, sink, point.name, piece))
        else:
            value = self.changed(self.value(piece))
            if other is not None and self.chance(0.4):
                value = self.paired(value, self.value(other))
            side = "before" if self.chance(self.before_the_cut) else "after"
            seen = value.live.snapshot_aligned(tick, point, WHY, side=side)
            sink = self.shown(self.read_value(seen).all_ticks())
            self.program.uses.append(Use(kind, sink, point.name, value, side))

    def unaligned(self, piece: Piece) -> None:
        """A third reader that has no part in it (A37)."""
        tick = self.random.choice(self.ticks)
        if self.chance(0.5):
            self.shown(piece.live.batch(tick, WHY).all_ticks())
        else:
            self.shown(self.read_value(self.value(piece).live.snapshot(tick, WHY)).all_ticks())

    # --- the whole ----------------------------------------------------------------------

    def make(self) -> Program:
        shared = [
            self.grown(self.source(), self.random.randint(0, 2)) for _ in range(self.random.randint(1, 2))
        ]
        points = [self.home.local_align_point(f"p{n}") for n in range(2 if self.chance(0.25) else 1)]
        for point in points:
            self.around(shared, point)
        if self.chance(0.5):
            self.unaligned(self.random.choice(shared))
        if self.chance(0.5) and len(self.program.sources) < self.most:
            self.unaligned(self.source())
        return self.program

    def around(self, shared: list[Piece], point: Any) -> None:
        """Uses of a point that share something; now and then what is shared is named."""
        base = shared if self.chance(0.7) else [self.together(*self.random.choices(shared, k=2))]
        if self.chance(0.25):
            base = [piece.of(piece.live.aligned_at(point)) for piece in base]
        kinds = [self.random.choice(["batch", "snapshot"])]
        kinds += self.random.choices(["batch", "snapshot", "release"], k=self.random.randint(1, 3))
        tagged = base[0].live.node.kind == "aligned_at"
        for number, kind in enumerate(kinds):
            at = base[number % len(base)] if tagged else base[0] if number < 2 else self.random.choice(base)
            self.use(self.grown(at, self.random.randint(0, 2)), point, kind, self.random.choice(base))


class Mistakes(Maker):
    """Flows with a mistake in them, each with the error that it must give."""

    expected = "WrongLocation"  # of the one that is refused as it is written

    def two(self) -> tuple[Piece, Piece]:
        a, b = (Piece(self.home.source(name), bool, True, frozenset([name])) for name in ("a", "b"))
        return self.grown(a, self.random.randint(0, 2)), self.grown(b, self.random.randint(0, 2))

    def nothing_shared(self) -> str:
        point = self.home.local_align_point()
        for piece in self.two():
            self.use(piece, point, self.random.choice(["batch", "snapshot"]))
        return "NoSharedUpstream"

    def only_a_constant_shared(self) -> str:
        point, one = self.home.local_align_point(), self.home.singleton(1)
        for piece in self.two():
            crossed = piece.live.cross_singleton(one).map(lambda pair: pair[0])
            self.use(piece.of(crossed), point, self.random.choice(["batch", "snapshot"]))
        return "NoSharedUpstream"

    def shared_behind_the_network(self) -> str:
        point, far = self.home.local_align_point(), self.away.source("far")
        for _ in range(2):
            piece = Piece(far.send(self.home), bool, True, frozenset(["far"]))
            self.use(self.grown(piece, self.random.randint(0, 2)), point, "batch")
        return "SharedOnlyBehindNetwork"

    def not_named(self) -> str:
        point = self.home.local_align_point()
        a, b = self.two()
        named = a.of(a.live.aligned_at(point))
        for piece in (named, named, b):
            self.use(piece, point, "batch")
        return "NotAligned"

    def comes_back(self) -> str:
        point = self.home.local_align_point()
        a, _ = self.two()
        again = a.live.batch_aligned(self.ticks[0], point, WHY).all_ticks()
        self.use(self.grown(a.of(again), self.random.randint(0, 1)), point, "release")
        return "ReentrantAlignment"

    def lags_inside(self) -> str:
        point = self.home.local_align_point()
        a, _ = self.two()
        lagging = a.live.batch(self.home.tick(), WHY).all_ticks()
        self.use(a.of(lagging), point, "release")
        self.use(a, point, "snapshot")
        return "AsyncEdgeInRegion"

    def elsewhere(self) -> str:
        point = self.away.local_align_point()
        self.use(self.two()[0], point, self.random.choice(["batch", "release"]))
        return "WrongLocation"

    def torn_pair(self) -> str:
        a, b = self.two()
        left, right = (p.live.fold_commutative((), joined, idempotent=True) for p in (a, b))
        self.shown(left.zip(right).snapshot(self.ticks[0], WHY).all_ticks())
        return "NotPromised"

    def needs_itself(self) -> str:
        tick = self.ticks[0]
        handle, later = tick.forward_ref(ordered=False)
        both = later.union(self.two()[0].live.batch(tick, WHY).unique())
        handle.complete(both)
        self.shown(both.all_ticks())
        return "SynchronousCycle"

    def unfinished(self) -> str:
        _, later = self.home.forward_ref()
        self.shown(later)
        return "Unfinished"


MISTAKES = [
    Mistakes.nothing_shared,
    Mistakes.only_a_constant_shared,
    Mistakes.shared_behind_the_network,
    Mistakes.not_named,
    Mistakes.comes_back,
    Mistakes.lags_inside,
    Mistakes.elsewhere,
    Mistakes.torn_pair,
    Mistakes.needs_itself,
    Mistakes.unfinished,
]


def program(seed: int, sources: int = 3) -> Program:
    """The program of a seed."""
    return Maker(Random(seed), sources).make()
