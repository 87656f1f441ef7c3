"""The oracle of agreement: it looks at tags in what comes out, and knows nothing of how a flow is compiled.

In one execution all reads of a point have seen the same of what they share (A8), what they have seen never
shrinks, and what was released is in every later read (A9). When nothing is left to happen, everything was
seen (A39).
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.flow.simulator.graphs import Program, Tag, Use
from trueline.flow import Machine
from trueline.flow.compiled import CompiledFlow

STEPS = 400


class Disagreement(AssertionError):
    """What the oracle found."""


class Watch:
    """Follows one run of a program."""

    def __init__(self, program: Program, compiled: CompiledFlow | None = None) -> None:
        self.program = program
        self.machine = Machine(compiled or program.flow.compile())
        self.machine.observer = self.fired
        self.sent: dict[str, int] = dict.fromkeys(program.sources, 0)
        self.arrived: set[Tag] = set()
        self.seen: dict[str, set[Tag]] = {use.sink: set() for use in program.uses}
        self.before: dict[str, set[Tag]] = {use.sink: set() for use in program.uses}
        self.executions = 0

    # --- driving ------------------------------------------------------------------------

    def run(self, random: Random, elements: int = 6) -> None:
        """Send and fire in a random order until everything has happened."""
        left = elements
        for _ in range(STEPS):
            ready = bool(self.machine.ready())
            if left and (not ready or random.random() < 0.4):
                self.send(random)
                left -= 1
            elif ready:
                self.machine.fire(lambda ways, what: random.randrange(ways) if random.random() < 0.8 else 0)
            else:
                break
        else:
            raise Disagreement(f"after {STEPS} steps the flow has not come to rest")
        self.at_rest()

    def send(self, random: Random) -> None:
        source = random.choice(self.program.sources)
        for _ in range(random.randint(1, 2)):
            tag = (source, self.sent[source])
            self.sent[source] += 1
            self.arrived.add(tag)
            self.machine.send(source, (tag,))

    # --- watching -----------------------------------------------------------------------

    def fired(self, firing: Any) -> None:
        points = set(firing.cuts)
        uses = [use for use in self.program.uses if use.point in points]
        if not uses:
            return
        self.executions += 1
        self.before = {sink: set(tags) for sink, tags in self.seen.items()}
        for use in uses:
            out = firing.outputs.get(use.sink, ())
            if use.kind == "release":  # what it has let out counts, whenever that was
                out = self.machine.outputs(use.sink)
            new = {tag for element in out for tag in element}
            if use.kind == "snapshot":
                if not new >= self.seen[use.sink]:
                    raise Disagreement(f"{use.sink} has lost {sorted(self.seen[use.sink] - new)}")
                self.seen[use.sink] = new
            else:
                self.seen[use.sink] |= new
        for use in uses:
            for other in uses:
                if use.point == other.point and other is not use:
                    self.agree(use, other)

    def agree(self, one: Use, two: Use) -> None:
        """What one use has seen, the other has seen, as far as it lets it through."""
        # What is before the cut of an execution was after the cut of the one before.
        first = self.seen[one.sink]
        second = self.before[two.sink] if one.side == "before" != two.side else self.seen[two.sink]
        if two.side == "before" != one.side:
            # `two` is one execution behind: it must have what `one` had then.
            first = self.before[one.sink]
        for tag in sorted(first):
            if two.piece.strict and two.piece.lets(tag) and tag not in second:
                raise Disagreement(f"{one.sink} ({one.kind}) has seen {tag}, {two.sink} ({two.kind}) has not")

    def at_rest(self) -> None:
        for use in self.program.uses:
            due = {tag for tag in self.arrived if use.piece.lets(tag)}
            if use.piece.strict and use.side == "after" and self.active(use) and self.seen[use.sink] != due:
                raise Disagreement(
                    f"at rest {use.sink} has seen {sorted(self.seen[use.sink])}, not {sorted(due)}"
                )

    def active(self, use: Use) -> bool:
        """Whether executions of the point were seen at all (a point that changes nothing has none)."""
        return use.point in self.machine.cuts() and self.executions > 0


def examine(program: Program, seed: int, runs: int = 4) -> int:
    """Hold some runs of a program to the oracle; says how many executions were looked at."""
    looked = 0
    for number in range(runs):
        watch = Watch(program)
        watch.run(Random(seed * 1_000 + number))
        looked += watch.executions
    return looked
