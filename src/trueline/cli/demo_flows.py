"""A chapter of the demo: a counter whose acknowledgements promise too much, and the same counter aligned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trueline.flow import Counterexample, Flow, nondet

if TYPE_CHECKING:
    from trueline.console import Console
    from trueline.flow import Simulation


def counter(aligned: bool) -> Flow:
    """Increments are acknowledged, queries answered with the count."""
    flow = Flow("counter")
    server = flow.process("server")
    increments, queries = server.source("increments"), server.source("queries")
    tick = server.tick("answering")
    why = nondet("any count that includes what was acknowledged will do")
    if aligned:
        point = server.local_align_point("count")
        server.sink("acks", increments.release_aligned(point))
        count = increments.count().snapshot_aligned(tick, point, why)
    else:
        server.sink("acks", increments)
        count = increments.count().snapshot(tick, why)
    asked = queries.batch(tick, nondet("asked when it is asked"))
    server.sink("answers", asked.cross_singleton(count).all_ticks())
    return flow


def reads_its_writes(sim: Simulation) -> None:
    """What was acknowledged is in every later answer."""
    sim.send("increments", "one", "two")
    first = sim.next("acks")
    sim.send("queries", "how many?")
    asked, count = sim.next("answers")
    assert count >= 1, f"the answer to {asked!r} is {count}, after {first!r} was acknowledged"


def simulate(console: Console) -> dict[str, Any]:
    """Test both counters under every schedule; return what was found."""
    facts: dict[str, Any] = {"naive": None}
    try:
        counter(aligned=False).simulate(reads_its_writes)
    except Counterexample as found:
        console.say("  as it is usually written:", "strong")
        for line in found.trace.text().splitlines():
            console.say(f"    {line}", "faint")
        facts["naive"] = list(found.choices)
    explored = counter(aligned=True).simulate(reads_its_writes, hashing=False)
    console.say("  with an align point:", "strong")
    console.say(f"    {explored}", "good" if explored.exhaustive else "bad")
    facts["aligned"] = explored.exhaustive
    return facts
