"""Runs of steps in a process of their own, timed: `python -m bench.run_once JSON`.

A process each, so that neither side inherits the other's memory, and so that
a run of feedforward's that never ends can be ended: under load its workers may
die, and it waits for them for ever.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench.timing import Samples, sample, timed

Side = Literal["ours", "feedforward"]
Map = Callable[[Any, Any], Any]
WORKERS = 2


@dataclass(frozen=True)
class Load:
    """Keys through steps that do nothing, or that change every value; how often, and who watches."""

    keys: int
    steps: int
    changes: bool
    rounds: int = 1
    journal: bool = False
    recording: bool = False


@dataclass(frozen=True)
class Outcome:
    """How long each round took, and how many rounds gave a wrong result."""

    samples: Samples
    wrong: int = 0

    def per_key_and_step(self, load: Load) -> float:
        return min(self.samples.seconds) / max(1, load.keys * load.steps)


def apart(side: Side, load: Load, seconds: float = 900) -> Outcome | None:
    """Measure in another process; None if it did not end in time."""
    found = _asked({"side": side, "load": asdict(load)}, seconds)
    return Outcome(Samples(tuple(found["seconds"])), found["wrong"]) if found else None


def waited(number: int, keys: int, rounds: int) -> Samples | None:
    """Measure feedforward on one of the runs that wait, in another process."""
    found = _asked({"waiting": number, "keys": keys, "rounds": rounds}, 120)
    return Samples(tuple(found["seconds"])) if found else None


def gone_ahead(share: float, seeds: int, pause: float) -> tuple[Samples, int] | None:
    """Measure feedforward on runs of few keys and many steps, in another process: times, and calls in all."""
    found = _asked({"ahead": share, "seeds": seeds, "pause": pause}, 120)
    return (Samples(tuple(found["seconds"])), found["calls"]) if found else None


def _asked(question: dict[str, Any], seconds: float) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "bench.run_once", json.dumps(question)]
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=True, cwd=root, env=environment
        )
    except subprocess.TimeoutExpired:
        return None
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _same(_: Any, value: Any) -> Any:
    return value


def _next(_: Any, value: Any) -> Any:
    return value + 1


def run_ours(steps: Sequence[Map], inputs: dict[Any, Any], **options: Any) -> dict[Any, Any]:
    from trueline.run import Run, Step

    return Run([Step(map=each) for each in steps], WORKERS, **options).execute(inputs)


def run_feedforward(
    steps: Sequence[Map], inputs: dict[Any, Any], workers: int = WORKERS, limits: Sequence[int | None] = ()
) -> dict[Any, Any]:
    from feedforward import Run, Step

    run = Run(parallelism=workers)
    for index, each in enumerate(steps):
        limit = limits[index] if limits else None
        run.add_step(Step(map_func=each, concurrency_limit=limit, batch_size=1 if workers > WORKERS else 10))
    return {key: state.value for key, state in run.run_to_completion(inputs).items()}


def measure(side: Side, load: Load) -> dict[str, Any]:
    steps: list[Map] = [_next if load.changes else _same] * load.steps
    inputs: dict[Any, Any] = dict.fromkeys(range(load.keys), 0)
    expected = load.steps if load.changes else 0
    seconds, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(load.rounds):
            options: dict[str, Any] = {}
            if load.journal:
                options["journal"] = Path(folder) / f"{number}.journal"
            if load.recording:
                from trueline.run import Recording

                options["observers"] = [Recording()]
            gc.collect()
            start = time.perf_counter()
            found = run_ours(steps, inputs, **options) if side == "ours" else run_feedforward(steps, inputs)
            seconds.append(time.perf_counter() - start)
            wrong += len(found) != load.keys or any(value != expected for value in found.values())
    return {"seconds": seconds, "wrong": wrong}


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Do what was asked for."""
    from bench.waiting import ahead, scenarios

    if "load" in question:
        return measure(question["side"], Load(**question["load"]))
    if "waiting" in question:
        load = scenarios(question["keys"])[question["waiting"]]
        return {"seconds": sample(load.feedforward, question["rounds"]).seconds}
    loads = [ahead(question["ahead"], seed, question["pause"]) for seed in range(question["seeds"])]
    seconds = [timed(load.feedforward) for load in loads]
    return {"seconds": seconds, "calls": sum(len(load.calls) for load in loads)}


if __name__ == "__main__":
    print(json.dumps(answer(json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # feedforward's threads are no daemons: one that hangs would keep the process
