"""The simulator: executions a second, what hashing saves, and how soon planted bugs are found."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.run import Run
from bench.table import Row, Value, rate
from bench.timing import sample
from trueline.flow import Counterexample, Flow, nondet

GOAL = 20_000
SOON = 10
WHY = nondet("measured over every choice")
NOTE = (
    "flows: exhaustive is depth first and takes each schedule up where it leaves the one before; deviations "
    "and fuzz run every schedule from the beginning. Functions are always checked for changing their input."
)
BUGS = (
    "flows, bugs: bug n shows only if n of n answers are stale, so n choices must differ from the eager "
    "ones; the time includes shrinking."
)


def run(run: Run) -> Iterator[Row]:
    small = run.scale.name == "tiny"
    yield from _speed(small)
    yield from _hashing(small)
    yield from _first_bug()
    yield from _bugs(3 if small else 10, 500 if small else 200_000)


# --- programs ---------------------------------------------------------------------------


def counter() -> Flow:
    """The naive counter: every increment is echoed, queries are answered from a snapshot."""
    flow = Flow("counter")
    server = flow.process("server")
    increments, tick = server.source("increments"), server.tick()
    server.sink("acks", increments)
    asked = server.source("queries").batch(tick, WHY)
    server.sink("answers", asked.cross_singleton(increments.count().snapshot(tick, WHY)).all_ticks())
    return flow


def ten_operators() -> Flow:
    """Ten operators between source and sink."""
    flow = Flow("ten")
    p = flow.process("p")
    tick = p.tick()
    words = p.source("in").map(str).filter(bool).flat_map(lambda w: [w]).unique()
    pieces = words.key_by(len).values().batch(tick, WHY).sort().enumerate().map(lambda pair: pair[1])
    p.sink("out", pieces.all_ticks())
    return flow


def rounds(count: int) -> Callable[[Any], None]:
    def body(sim: Any) -> None:
        for number in range(count):
            sim.send("increments", number)
            sim.next("acks")
        sim.send("queries", "q")
        sim.next("answers")

    return body


def sent(count: int) -> Callable[[Any], None]:
    def body(sim: Any) -> None:
        sim.send("in", *range(count))
        sim.quiesce()

    return body


def stale(count: int) -> Callable[[Any], None]:
    """Fails only where every one of so many answers leaves out its increment."""

    def body(sim: Any) -> None:
        late = 0
        for number in range(1, count + 1):
            sim.send("increments", number)
            sim.next("acks")
            sim.send("queries", number)
            late += sim.next("answers")[1] < number
        assert late < count

    return body


# --- measurements -----------------------------------------------------------------------


def _speed(small: bool) -> Iterator[Row]:
    cases = {
        "the counter": (counter, rounds(4 if small else 11)),
        "ten operators": (ten_operators, sent(4 if small else 6)),
    }
    for what, (make, body) in cases.items():
        for mode in ("exhaustive", "deviations", "fuzz"):
            options: dict[str, Any] = {"mode": mode, "hashing": False, "max_deviations": None}
            options["max_executions"] = 200 if mode == "fuzz" else 50_000
            again = partial(make().simulate, body, **options)
            count = again().executions
            taken = sample(again, 3)
            speed = count / taken.median
            held = mode == "exhaustive"
            yield Row(
                "flows",
                f"flows: {what}, {mode}, {count:,} executions",
                rate(speed, "executions", taken),
                goal="≥ 20,000/s" if held else "",
                met=speed >= GOAL if held else None,
                note=NOTE,
            )


def _hashing(small: bool) -> Iterator[Row]:
    cases = {
        "the counter": (counter, rounds(4 if small else 10)),
        "ten operators": (ten_operators, sent(4 if small else 6)),
    }
    for what, (make, body) in cases.items():
        plain = make().simulate(body, hashing=False)
        hashed = make().simulate(body)
        runs = hashed.executions + hashed.pruned
        text = f"{runs:,} runs, {hashed.states:,} states"
        data = {"runs": runs, "states": hashed.states, "plain": plain.executions}
        yield Row(
            "flows",
            f"flows: {what}, states kept",
            Value(text, data),
            Value(f"{plain.executions:,} runs without", {"runs": plain.executions}),
            plain.executions / runs,
            aside="runs saved ×",
        )


def _first_bug() -> Iterator[Row]:
    for mode in ("exhaustive", "deviations", "fuzz"):
        runs = 0

        def body(sim: Any) -> None:
            nonlocal runs
            runs += 1
            stale(1)(sim)

        _find(counter(), body, mode, 1_000, shrink=0)
        value = Value(f"{runs - 1} executions", {"executions": runs - 1})  # the last one tells it
        text = f"flows: the naive counter's bug, {mode}"
        yield Row("flows", text, value, goal=f"≤ {SOON}", met=runs - 1 <= SOON)


def _bugs(deepest: int, limit: int) -> Iterator[Row]:
    for mode in ("exhaustive", "deviations", "fuzz"):
        seconds: dict[int, float | None] = {}
        for depth in range(1, deepest + 1):
            start = time.perf_counter()
            many = min(limit, 1_000) if mode == "fuzz" else limit
            found = _find(counter(), stale(depth), mode, many, max_deviations=None)
            seconds[depth] = time.perf_counter() - start if found else None
        times = [each for each in seconds.values() if each is not None]
        deep = max((depth for depth, each in seconds.items() if each is not None), default=0)
        text = f"{len(times)} of {deepest} in {sum(times):.2f} s, deepest {deep}"
        data = {"seconds": seconds, "found": len(times)}
        yield Row("flows", f"flows: {deepest} bugs of growing depth, {mode}", Value(text, data), note=BUGS)


def _find(flow: Flow, body: Callable[[Any], None], mode: Any, limit: int, **options: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            flow.simulate(body, mode=mode, max_executions=limit, **options)
        except Counterexample:
            return True
    return False
