"""The seed's counter in all its versions: increments are acknowledged, queries answered with the count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trueline.flow import Flow, nondet

TOGETHER = nondet("queries are answered with whatever others came with them")
VERSION = nondet("any count that includes what was acknowledged will do")


def _parts() -> tuple[Flow, Any, Any, Any]:
    flow = Flow("counter")
    server = flow.process("server")
    return flow, server, server.source("increments"), server.source("queries")


def naive() -> Flow:
    """Every increment is echoed at once: the count may lag behind its acknowledgement."""
    flow, server, increments, queries = _parts()
    tick = server.tick("answering")
    server.sink("acks", increments)
    count = increments.count().snapshot(tick, VERSION)
    server.sink("answers", queries.batch(tick, TOGETHER).cross_singleton(count).all_ticks())
    return flow


def own_tick() -> Flow:
    """Increments are acknowledged from a tick of their own; the count is still kept outside."""
    flow, server, increments, queries = _parts()
    counting, answering = server.tick("counting"), server.tick("answering")
    server.sink("acks", increments.batch(counting, TOGETHER).all_ticks())
    count = increments.count().snapshot(answering, VERSION)
    server.sink("answers", queries.batch(answering, TOGETHER).cross_singleton(count).all_ticks())
    return flow


def _counted(tick: Any, batch: Any) -> Any:
    """The count of all batches of a tick."""
    later, before = tick.state(0)
    count = before.zip(batch.count()).map(sum)
    later.complete(count)
    return count


def latest_and_snapshot() -> Flow:
    """The count is kept in the tick that acknowledges, and leaves it with `latest`: it may lag again."""
    flow, server, increments, queries = _parts()
    counting, answering = server.tick("counting"), server.tick("answering")
    batch = increments.batch(counting, TOGETHER)
    server.sink("acks", batch.all_ticks())
    count = _counted(counting, batch).latest().snapshot(answering, VERSION)
    server.sink("answers", queries.batch(answering, TOGETHER).cross_singleton(count).all_ticks())
    return flow


def shared_tick() -> Flow:
    """Queries are answered in the tick that counts and acknowledges."""
    flow, server, increments, queries = _parts()
    tick = server.tick("everything")
    batch = increments.batch(tick, TOGETHER)
    server.sink("acks", batch.all_ticks())
    answers = queries.batch(tick, TOGETHER).cross_singleton(_counted(tick, batch))
    server.sink("answers", answers.all_ticks())
    return flow


def aligned() -> Flow:
    """The count and the acknowledgements agree at a point; the ticks are as in the naive version."""
    flow, server, increments, queries = _parts()
    tick, point = server.tick("answering"), server.local_align_point("count")
    server.sink("acks", increments.release_aligned(point))
    count = increments.count().snapshot_aligned(tick, point, VERSION)
    server.sink("answers", queries.batch(tick, TOGETHER).cross_singleton(count).all_ticks())
    return flow


def aligned_at() -> Flow:
    """The same, with what is shared named."""
    flow, server, increments, queries = _parts()
    tick, point = server.tick("answering"), server.local_align_point("count")
    shared = increments.aligned_at(point)
    server.sink("acks", shared.release_aligned(point))
    count = shared.count().snapshot_aligned(tick, point, VERSION)
    server.sink("answers", queries.batch(tick, TOGETHER).cross_singleton(count).all_ticks())
    return flow


def aligned_without_release() -> Flow:
    """The acknowledgements no longer wait: one use of the point is left, which changes nothing."""
    flow, server, increments, queries = _parts()
    tick, point = server.tick("answering"), server.local_align_point("count")
    server.sink("acks", increments)
    count = increments.count().snapshot_aligned(tick, point, VERSION)
    server.sink("answers", queries.batch(tick, TOGETHER).cross_singleton(count).all_ticks())
    return flow


def aligned_without_snapshot() -> Flow:
    """The count is read as in the naive version: the acknowledgements have nothing to wait for."""
    flow, server, increments, queries = _parts()
    tick, point = server.tick("answering"), server.local_align_point("count")
    server.sink("acks", increments.release_aligned(point))
    count = increments.count().snapshot(tick, VERSION)
    server.sink("answers", queries.batch(tick, TOGETHER).cross_singleton(count).all_ticks())
    return flow


def keyed(acks: str = "aligned", read: str = "aligned") -> Flow:
    """The program of the seed as it is written there: requests by client, and a count that needs no order."""
    flow = Flow("keyed counter")
    server = flow.process("server")
    increment, query = server.source("increments").into_keyed(), server.source("queries").into_keyed()
    point, tick = server.local_align_point("count"), server.tick("answering")
    count = increment.values().fold_commutative(0, lambda total, _: total + 1, lambda a, b: a + b)
    server.sink("acks", increment.release_aligned(point) if acks == "aligned" else increment)
    seen = (
        count.snapshot_aligned(tick, point, VERSION) if read == "aligned" else count.snapshot(tick, VERSION)
    )
    asked = query.batch(tick, TOGETHER).entries().map(lambda entry: entry[0])
    server.sink("answers", asked.cross_singleton(seen).into_keyed().all_ticks())
    return flow


def over_the_network(acks: str = "aligned", read: str = "aligned", clients: int = 2) -> Flow:
    """The same server with clients on other machines, who ask for the count once they are acknowledged."""
    flow = Flow("counter and clients")
    server, many = flow.process("server"), flow.cluster("clients", clients)
    increment = many.source("increments").gather(server)
    point, tick = server.local_align_point("count"), server.tick("answering")
    count = increment.values().fold_commutative(0, lambda total, _: total + 1, lambda a, b: a + b)
    released = increment.release_aligned(point) if acks == "aligned" else increment
    acked = released.entries().demux(many, lambda entry: entry[0])
    many.sink("acks", acked)
    seen = (
        count.snapshot_aligned(tick, point, VERSION) if read == "aligned" else count.snapshot(tick, VERSION)
    )
    asked = acked.gather(server).batch(tick, TOGETHER).entries().map(lambda entry: entry[0])
    answers = asked.cross_singleton(seen).all_ticks()
    many.sink("answers", answers.demux(many, lambda answer: answer[0]).map(lambda answer: answer[1]))
    return flow


def keyed_write_then_read(sim: Any) -> None:
    """Two clients, each of whom asks after its own acknowledgement."""
    for number, client in enumerate(("ann", "bob"), 1):
        sim.send("increments", (client, ()))
        assert sim.next("acks") == (client, ())
        sim.send("queries", (client, ()))
        assert sim.next("answers") == (client, number)


def clients_write_then_read(sim: Any) -> None:
    """Every client finds its own increment in the answer it gets after the acknowledgement."""
    for client in (0, 1):
        sim.send("increments", "one", member=client)
    for client in (0, 1):
        assert sim.next("answers", member=client) in (1, 2)


BROKEN: dict[str, Callable[[], Flow]] = {
    "naive": naive,
    "own tick": own_tick,
    "latest and snapshot": latest_and_snapshot,
    "aligned without the release": aligned_without_release,
    "aligned without the snapshot": aligned_without_snapshot,
}
SOUND: dict[str, Callable[[], Flow]] = {
    "shared tick": shared_tick,
    "aligned": aligned,
    "aligned_at": aligned_at,
}


def write_then_read(sim: Any) -> None:
    """An increment that was acknowledged is in every later answer."""
    sim.send("increments", "one")
    assert sim.next("acks") == "one"
    sim.send("queries", "how many?")
    assert sim.next("answers") == ("how many?", 1)


def write_then_look(sim: Any) -> None:
    """The same, where any answer will do."""
    sim.send("increments", "one")
    assert sim.next("acks") == "one"
    sim.send("queries", "how many?")
    sim.next("answers")


def write_twice_then_read(sim: Any) -> None:
    """Two increments, each acknowledged before the next; both are in every later answer."""
    for number in ("one", "two"):
        sim.send("increments", number)
        assert sim.next("acks") == number
    sim.send("queries", "how many?")
    assert sim.next("answers") == ("how many?", 2)


def write_and_read(sim: Any) -> None:
    """Both at once: the answer may be either."""
    sim.send("increments", "one")
    sim.send("queries", "how many?")
    assert sim.next("answers") in [("how many?", 0), ("how many?", 1)]
    sim.quiesce()
    assert sim.collect("acks") == ["one"]
