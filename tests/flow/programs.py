"""Small flows the tests share, and an exploration of all that a machine can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trueline.flow import Flow, Machine, nondet
from trueline.flow.values import frozen

WHY = nondet("a test")


def traces(
    flow: Flow,
    *sends: tuple[str, tuple[Any, ...]],
    sinks: tuple[str, ...] | None = None,
    limit: int = 200_000,
) -> set[Any]:
    """What all sinks can have shown when everything is at rest, all inputs being sent first.

    Elements of an unordered sink are compared without their order, as a reader must.
    """
    machine = Machine(flow.compile(), check=True)
    for source, values in sends:
        machine.send(source, *values)
    names = sinks or tuple(name for name, _ in machine.compiled.sinks)
    ordered = {node.name: node.ordered and node.shape == "stream" for node in flow.graph.named("sink")}
    found: set[Any] = set()
    seen: set[Any] = set()
    todo = [machine.snapshot()]
    while todo:
        machine.restore(todo.pop())
        key = machine.key()
        if key in seen:
            continue
        seen.add(key)
        assert len(seen) < limit
        choices = machine.choices()
        if not choices:
            found.add(tuple(_shown(machine.outputs(name), ordered[name]) for name in names))
        here = machine.snapshot()
        for choice in choices:
            machine.restore(here)
            machine.fire(choice)
            todo.append(machine.snapshot())
    return found


def _shown(values: tuple[Any, ...], ordered: bool) -> Any:
    return frozen(values if ordered else tuple(sorted(values, key=repr)))


def counter(
    read: str = "aligned", ack: str = "aligned", tag: bool = False, before: Callable[[Any], Any] = lambda s: s
) -> Flow:
    """The counter of the alignment page: increments, acknowledgements, queries."""
    flow = Flow("counter")
    p = flow.process("server")
    tick, point = p.tick("answers"), p.local_align_point("count")
    increments = before(p.source("increments"))
    if tag:
        increments = increments.aligned_at(point)
    count = increments.fold(0, lambda total, x: total + x)
    p.sink("acks", increments.release_aligned(point) if ack == "aligned" else increments)
    if read == "aligned":
        seen = count.snapshot_aligned(tick, point, nondet("any count that has the acknowledged"))
    else:
        seen = count.snapshot(tick, nondet("any recent count"))
    asked = p.source("queries").batch(tick, nondet("asked when it is asked"))
    p.sink("answers", asked.cross_singleton(seen).all_ticks())
    return flow


def bank(aligned: bool = True) -> Flow:
    """Transfers, credits and debits by account, and the total of all balances, which must be 0."""
    flow = Flow("bank")
    p = flow.process("bank")
    tick, point = p.tick("reading"), p.local_align_point("balance")
    transfers = p.source("transfers")
    credits_ = transfers.key_by(lambda t: t[1]).map(lambda t: t[2]).fold(0, lambda a, b: a + b)
    debits = transfers.key_by(lambda t: t[0]).map(lambda t: t[2]).fold(0, lambda a, b: a + b)
    read = (lambda c: c.snapshot_aligned(tick, point, WHY)) if aligned else (lambda c: c.snapshot(tick, WHY))
    plus = read(credits_).values().fold_commutative(0, lambda a, b: a + b)
    minus = read(debits).values().fold_commutative(0, lambda a, b: a + b)
    asked = p.source("queries").batch(tick, WHY)
    total = plus.cross_singleton(minus).map(lambda both: both[0] - both[1])
    p.sink("totals", asked.cross_singleton(total).map(lambda pair: pair[1]).all_ticks())
    return flow
