"""Runs beside feedforward: overhead per key and step, waiting steps, working ahead, the floor."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from bench.run import Run
from bench.run_once import Load, Outcome, apart, gone_ahead, run_feedforward, run_ours, waited
from bench.table import Row, Value, duration
from bench.timing import Samples, alternate, sample, timed
from bench.waiting import Waiting, ahead, scenarios

GOALS = {False: 1.5e-6, True: 5e-6}
THIRD = 1 / 3
FLOOR = 0.002
BEHIND = 1.1
SHARES = (0.0, 0.1, 0.5, 1.0)

NOTE = (
    "runs: two workers, each measurement in a process of its own, the best of its rounds; feedforward with "
    "its own defaults. Where it gave a wrong result, or never ended, that is said beside the ratio."
)
WAITING = (
    "runs that wait: eight workers, the median of three; held against the faster of the barrier (one step "
    "after another in a pool) and the chain (one task per key)."
)
AHEAD = (
    "runs ahead: two keys, eight steps of 50 ms, eight workers, the mean of six seeds; work × is how often a "
    "step was called for each time it had to be."
)


def run(run: Run) -> Iterator[Row]:
    peers = run.peers and _feedforward() is not None
    yield from _overhead(run, peers)
    yield from _watched(run)
    yield from _floor(peers)
    yield from _waiting(run, peers)
    yield from _ahead(run, peers)


def _feedforward() -> str | None:
    try:
        return version("feedforward")
    except PackageNotFoundError:
        return None


# --- overhead -----------------------------------------------------------------


def _overhead(run: Run, peers: bool) -> Iterator[Row]:
    for steps in (3, 10):
        for changes in (False, True):
            costs: dict[int, float] = {}
            for keys in run.scale.runs:
                load = Load(keys, steps, changes, rounds=_rounds(keys * steps))
                with run.doing(f"{keys:,} keys × {steps} steps"):
                    ours = apart("ours", load)
                    asked = peers and keys <= run.scale.run_peers
                    peer = apart("feedforward", load) if asked else None
                assert ours is not None
                assert not ours.wrong
                costs[keys] = ours.per_key_and_step(load)
                yield _cost(load, ours, peer, asked)
            yield from _linear(steps, changes, costs)


def _rounds(work: int) -> int:
    return 5 if work <= 100_000 else 3 if work <= 1_000_000 else 1


def _cost(load: Load, ours: Outcome, peer: Outcome | None, asked: bool) -> Row:
    what = f"{load.keys:,} keys × {load.steps} steps, {'all change' if load.changes else 'none change'}"
    mine, goal = ours.per_key_and_step(load), GOALS[load.changes]
    theirs = peer.per_key_and_step(load) if peer else None
    # So few that the run's floor is most of it: they are held against feedforward only.
    small = load.keys * load.steps < 100_000
    met = (small or mine <= goal) and (theirs is None or mine <= THIRD * theirs)
    limit = f"≤ {goal * 1e6:g} µs, " if not small else ""
    aside = f"feedforward: {peer.wrong} of {load.rounds} wrong" if peer and peer.wrong else ""
    if asked and peer is None:
        aside = "feedforward did not end"
    return Row(
        "runs",
        f"run overhead: {what}",
        _micro(mine),
        _micro(theirs, "feedforward ") if theirs is not None else None,
        mine / theirs if theirs else None,
        f"{limit}≤ ⅓ of feedforward",
        None if small and theirs is None else met,
        NOTE,
        aside,
    )


def _micro(seconds: float, label: str = "") -> Value:
    return Value(f"{label}{seconds * 1e6:.2f} µs per key and step", {"seconds": seconds})


def _linear(steps: int, changes: bool, costs: dict[int, float]) -> Iterator[Row]:
    """Beside 10,000 keys or more: below, the floor is in the number."""
    held = {keys: cost for keys, cost in costs.items() if keys >= 10_000}
    if len(held) > 1:
        few, many = min(held), max(held)
        ratio = held[many] / held[few]
        yield Row(
            "runs",
            f"run overhead: {many:,} keys beside {few:,} × {steps}, {'all' if changes else 'none'} change",
            _micro(held[many]),
            _micro(held[few]),
            ratio,
            "≤ 1.5",
            ratio <= 1.5,
        )


def _watched(run: Run) -> Iterator[Row]:
    """What watching and writing down cost, beside the bare run."""
    load = Load(min(10_000, max(run.scale.runs)), 3, True, rounds=3)
    bare = apart("ours", load)
    assert bare is not None
    for what, watched in (
        ("with a journal", Load(load.keys, load.steps, True, 3, journal=True)),
        ("with a recording", Load(load.keys, load.steps, True, 3, recording=True)),
    ):
        found = apart("ours", watched)
        assert found is not None
        assert not found.wrong
        cost, plain = found.per_key_and_step(load), bare.per_key_and_step(load)
        yield Row(
            "runs",
            f"run overhead: {load.keys:,} keys × 3 steps, all change, {what}",
            _micro(cost),
            _micro(plain, "without "),
            cost / plain,
        )


# --- floor --------------------------------------------------------------------


def _floor(peers: bool) -> Iterator[Row]:
    steps = [lambda _, value: value + 1] * 12
    for what, inputs in (("no key", {}), ("one key", {"a": 0})):
        actions = {"ours": lambda inputs=inputs: run_ours(steps, inputs)}
        taken = alternate(actions, 30)
        peer = sample(lambda inputs=inputs: run_feedforward(steps, inputs), 5) if peers else None
        yield Row(
            "runs",
            f"run floor: {what} × 12 steps",
            duration(taken["ours"]),
            duration(peer, "feedforward ") if peer else None,
            taken["ours"].median / peer.median if peer else None,
            f"< {FLOOR * 1e3:g} ms",
            taken["ours"].median < FLOOR,
        )


# --- waiting ------------------------------------------------------------------


def _waiting(run: Run, peers: bool) -> Iterator[Row]:
    rounds = 3 if run.scale.sleepers >= 200 else 1
    for number, load in enumerate(scenarios(run.scale.sleepers)):
        ways: dict[str, Callable[[], object]] = {
            "ours": load.ours,
            "barrier": load.barrier,
            "chain": load.chain,
        }
        taken = alternate(ways, rounds, warmup=0)
        if peers and (theirs := waited(number, run.scale.sleepers, rounds)):
            taken["feedforward"] = theirs
        yield _waited(load, taken)


def _waited(load: Waiting, taken: dict[str, Samples]) -> Row:
    best = min(("barrier", "chain"), key=lambda way: taken[way].median)
    ratio = taken["ours"].median / taken[best].median
    others = " · ".join(f"{way} {taken[way].median * 1e3:.0f}" for way in taken if way != "ours")
    medians = {way: each.median for way, each in taken.items()}
    return Row(
        "runs",
        f"run that waits: {load.what}",
        Value(f"{taken['ours'].median * 1e3:.0f} ms", {"median_s": taken["ours"].median}),
        Value(f"ideal {load.ideal * 1e3:.0f} · {others} ms", medians | {"ideal": load.ideal}),
        ratio,
        f"≤ {BEHIND} × the better of barrier and chain",
        ratio <= BEHIND,
        WAITING,
    )


# --- working ahead ------------------------------------------------------------


def _ahead(run: Run, peers: bool) -> Iterator[Row]:
    seeds, pause = (6, 0.05) if run.scale.sleepers >= 200 else (1, 0.005)
    for share in SHARES:
        loads = [ahead(share, seed, pause) for seed in range(seeds)]
        mean = statistics.mean(timed(load.ours) for load in loads)
        needed = sum(load.keys * load.steps for load in loads)
        work = sum(len(load.calls) for load in loads) / needed
        chain = loads[0].steps * pause
        text = f"chain {chain * 1e3:.0f} ms"
        if peers and (theirs := gone_ahead(share, seeds, pause)):
            times, calls = theirs
            text += (
                f" · feedforward {statistics.mean(times.seconds) * 1e3:.0f} ms, work × {calls / needed:.2f}"
            )
        yield Row(
            "runs",
            f"run ahead: {share:.0%} of the values change",
            Value(f"{mean * 1e3:.0f} ms, work × {work:.2f}", {"mean_s": mean, "work": work}),
            Value(text),
            mean / chain,
            f"≤ {BEHIND} × the chain",
            mean <= BEHIND * chain,
            AHEAD,
        )
