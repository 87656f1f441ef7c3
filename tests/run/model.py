"""The rules of a run without an engine: steps, queues and generations, moved one action at a time.

Nothing here is shared with the engine but the steps. Messages lie in queues
until an action moves them, in any order; nobody is told that work is of no
use. Generations alone decide what counts, so what holds here holds however
slowly words travel.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.run.schedules import kinds_of
from tests.run.sequential import Refused, random_feed, random_run, run_sequentially
from trueline.run import ERASED, Step
from trueline.run.keys import in_order

NOBODY = object()


@dataclass
class Place:
    """A step: what lies in its queues, its two wings, its bits."""

    step: Step
    index: int
    incoming: list[tuple[Any, tuple[int, ...], Any]] = field(default_factory=list)
    outgoing: list[tuple[Any, tuple[int, ...], Any]] = field(default_factory=list)
    accepted: dict[Any, tuple[tuple[int, ...], Any]] = field(default_factory=dict)
    running: list[Any] = field(default_factory=list)
    writes: dict[Any, dict[Any, Any]] = field(default_factory=dict)
    ever: dict[Any, set[Any]] = field(default_factory=dict)
    owned: set[Any] = field(default_factory=set)
    refused: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    count: int = 0
    inputs_final: bool = False
    outputs_final: bool = False
    skipped: bool = False

    def can_begin(self) -> bool:
        return bool(self.incoming) and (self.step.eager or self.inputs_final or self.skipped)


class Model:
    """Moves at random until every step is final."""

    def __init__(self, seed: int) -> None:
        steps, inputs = random_run(seed, kinds_of(seed))
        self.rng = random.Random(seed)
        self.fed = random_feed(seed, inputs) if seed % 2 else [(k, v, False) for k, v in inputs.items()]
        self.oracle = run_sequentially(steps, {key: value for key, value, _ in self.fed})
        self.places = [Place(step, index) for index, step in enumerate(steps)]
        self.known: set[Any] = set()
        self.results: dict[Any, tuple[tuple[int, ...], Any]] = {}
        self.failed: int | None = None
        self.feeding = list(self.fed)

    # --- the actions ----------------------------------------------------------------

    def run(self) -> dict[Any, Any]:
        while self.failed is None:
            moves = [(self.feed, None)] if self.feeding else []
            for place in self.places:
                if place.can_begin():
                    moves.append((self.begin, place))
                if place.running:
                    moves.append((self.end, place))
                if place.outgoing:
                    moves.append((self.forward, place))
            if not moves:
                if not self.finish():
                    break
                continue
            move, place = moves[self.rng.randrange(len(moves))]
            move(place)
            if self.rng.random() < 0.2:
                self.finish()
        return {key: value for key, (_, value) in self.results.items() if value is not ERASED}

    def feed(self, _: Any) -> None:
        key, value, _ = self.feeding.pop(0)
        gens = [0] * len(self.places)
        if key in self.known:
            self.places[0].count += 1
            gens[0] = self.places[0].count
        self.known.add(key)
        self.deliver(0, (key, tuple(gens), value))

    def deliver(self, first: int, message: tuple[Any, tuple[int, ...], Any]) -> None:
        key, gens, value = message
        for place in self.places[first:]:
            assert not place.inputs_final, "F14"
            place.incoming.append(message)
        if key not in self.results or gens > self.results[key][0]:
            self.results[key] = (gens, value)

    def begin(self, place: Place) -> None:
        """Accept a message; one of a step that is not eager is the newest of its key."""
        choice = place.incoming[self.rng.randrange(len(place.incoming))]
        if not place.step.eager:
            choice = max((m for m in place.incoming if m[0] == choice[0]), key=lambda m: m[1])
        place.incoming.remove(choice)
        key, gens, value = choice
        if key not in place.accepted or gens > place.accepted[key][0]:
            place.accepted[key] = (gens, value)
            place.refused.pop(key, None)
            if place.skipped or value is ERASED:
                self.wrote(place, key, {})
            elif not place.step.takes_all:
                place.running.append((key, gens, value))
        if place.step.takes_all and not place.incoming:
            self.together(place)

    def end(self, place: Place) -> None:
        key, gens, value = place.running.pop(self.rng.randrange(len(place.running)))
        if place.skipped or place.accepted[key][0] != gens:
            return
        try:
            self.wrote(place, key, written(place.step, key, value))
        except Refused:
            place.refused[key] = gens
            self.wrote(place, key, {})

    def together(self, place: Place) -> None:
        """All keys are here: what each writes alone, then what rests on all of them."""
        good = []
        for key in in_order(place.accepted):
            value = place.accepted[key][1]
            try:
                if value is not ERASED and place.step.match(key):
                    writes = {
                        dst: made for src, dst, made in place.step.process([(key, value)]) if src == key
                    }
                    good.append((key, value))
                    self.wrote(place, key, writes)
            except Refused:
                place.refused[key] = place.accepted[key][0]
        if good:
            whole = {dst: made for src, dst, made in place.step.process(good) if src is None}
            place.accepted[NOBODY] = (max(gens for gens, _ in place.accepted.values()), ERASED)
            self.wrote(place, NOBODY, whole)

    def forward(self, place: Place) -> None:
        message = place.outgoing.pop(self.rng.randrange(len(place.outgoing)))
        self.deliver(place.index + 1, message)

    def finish(self) -> bool:
        """Set the bits that can be set; judge what was refused on input that is final."""
        moved = False
        before = not self.feeding
        for place in self.places:
            if before and not place.inputs_final:
                place.inputs_final = moved = True
            if place.inputs_final and not (place.incoming or place.running) and place.refused:
                self.judge(place)
                moved = True
            idle = not (place.incoming or place.running or place.outgoing or place.refused)
            if place.inputs_final and idle and not place.outputs_final:
                place.outputs_final = moved = True
            before = place.outputs_final
        return moved

    def judge(self, place: Place) -> None:
        refused, place.refused = place.refused, {}
        if place.step.on_error == "fail_run":
            self.failed = place.index
        elif place.step.on_error == "skip_key":
            for key in refused:
                self.wrote(place, key, {key: ERASED})
        else:
            place.skipped = True
            for key in list(place.writes):
                self.wrote(place, key, {})

    # --- what a step tells ----------------------------------------------------------

    def wrote(self, place: Place, source: Any, writes: dict[Any, Any]) -> None:
        touched = {source, *place.writes.pop(source, {}), *writes} - {NOBODY}
        if writes:
            place.writes[source] = writes
        for dst in writes:
            place.ever.setdefault(dst, set()).add(source)
        for dst in touched:
            self.emit(place, dst)

    def emit(self, place: Place, dst: Any) -> None:
        sources = [src for src, writes in place.writes.items() if dst in writes]
        came = place.accepted.get(dst)
        value = came[1] if came else ERASED
        if sources:
            single = [src for src in sources if src is not NOBODY]
            value = place.writes[NOBODY if NOBODY in sources else in_order(single)[-1]][dst]
        elif dst not in place.owned:
            return
        rests = [place.accepted[key][0] for key in (dst, *place.ever.get(dst, ())) if key in place.accepted]
        place.count += 1
        place.owned.add(dst)
        gens = (*max(rests)[: place.index], place.count, *(0,) * (len(self.places) - place.index - 1))
        place.outgoing.append((dst, gens, value))


def written(step: Step, key: Any, value: Any) -> dict[Any, Any]:
    """What a step writes from one key: a map writes the key itself, if anything."""
    if not step.match(key):
        return {}
    if step.kind == "map":
        made = step.map(key, value)
        return {} if made == value else {key: made}
    if step.kind == "flat_map":
        return dict(step.flat_map(key, value))
    return {dst: made for _, dst, made in step.process([(key, value)])}


def wrong_in_model(seed: int) -> str | None:
    """Run the model of a seed; say what differs from the steps one after another, if anything does."""
    model = Model(seed)
    found = model.run()
    if (model.failed is None) != (model.oracle.failed is None):
        return f"seed {seed}: failed {model.failed} instead of {model.oracle.failed}"
    if model.failed is None and not all(place.outputs_final for place in model.places):
        return f"seed {seed}: did not end"
    if model.failed is None and found != model.oracle.result:
        return f"seed {seed}: {found} instead of {model.oracle.result}"
    return None
