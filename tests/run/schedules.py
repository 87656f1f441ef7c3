"""One schedule of a run, decided by a seed: who begins, who ends, what comes in when."""

from __future__ import annotations

import random
import sys
from typing import Any

from tests.run.sequential import Kinds, Refused, random_feed, random_run, run_sequentially
from trueline.errors import RunFailed
from trueline.run import Inline, Step, Threads
from trueline.run.coordinator import Coordinator
from trueline.run.notify import Notifier


class Feeding(Inline):
    """Lets values come in between batches, when the seed says so."""

    def __init__(self, seed: int, workers: int, fed: list[tuple[Any, Any, bool]]) -> None:
        super().__init__(seed, workers)
        self.fed = fed
        self.inbox: Any = None

    def pump(self) -> bool:
        if self.inbox is not None and (not self._waiting or self._random.random() < 0.4):
            if self.fed:
                key, value, final = self.fed.pop(0)
                self.inbox.feed({key: value}, final=final)
            else:
                self.inbox.close()
                self.inbox = None
            return True
        return super().pump()


def shuffled(seed: int) -> Any:
    """Look for work anywhere, not from the left: worse than any real schedule."""
    rng = random.Random(seed)

    def order(lines: Any) -> Any:
        return rng.sample(lines, len(lines))

    return order


def kinds_of(seed: int) -> Kinds:
    """What the steps of a seed may do."""
    return Kinds(others=seed % 4 != 0, errors=seed % 3 != 0, whole=seed % 5 == 0)


def play(
    seed: int, made: type[Coordinator] = Coordinator, threads: int = 0
) -> tuple[Coordinator, list[Step], dict[str, Any]]:
    """Make the run of a seed, ready to go: fed all at once or bit by bit, in order or in disorder.

    With threads it is they, not the seed, that decide who ends first.
    """
    steps, inputs = random_run(seed, kinds_of(seed))
    fed = random_feed(seed, inputs) if seed % 2 else [(key, value, False) for key, value in inputs.items()]
    inputs = {key: value for key, value, _ in fed}
    executor: Any = Threads(threads) if threads else Inline(seed, 1 + seed % 5)
    if seed % 2 and not threads:
        executor = Feeding(seed, 1 + seed % 5, list(fed))
    coordinator = made(steps, executor, deliberate=seed % 11 == 0)
    if isinstance(executor, Feeding):
        executor.inbox = coordinator.inbox
    elif seed % 2:
        for key, value, final in fed:
            coordinator.inbox.feed({key: value}, final=final)
        coordinator.inbox.close()
    else:
        coordinator.inbox.feed(inputs)
        coordinator.inbox.close()
    if seed % 7 in (1, 2):
        coordinator.order = shuffled(seed)
    return coordinator, steps, inputs


def wrong(seed: int, made: type[Coordinator] = Coordinator, threads: int = 0) -> str | None:
    """Run the schedule of a seed; say what differs from the steps one after another, if anything does."""
    coordinator, steps, inputs = play(seed, made, threads)
    oracle = run_sequentially(steps, inputs)
    try:
        found = coordinator.run()
    except RunFailed as error:
        if oracle.failed is None:
            return f"seed {seed}: raised {error}"
        if not isinstance(error.__cause__, Refused) or error.cause is not error.__cause__:
            return f"seed {seed}: raised from {error.__cause__!r}"
        told = [each for each in coordinator.failures if each.on_error == "fail_run"]
        return None if len(told) == 1 else f"seed {seed}: {len(told)} failures"
    if oracle.failed is not None:
        return f"seed {seed}: did not raise {oracle.failed}"
    if found != oracle.result:
        return f"seed {seed}: {found} instead of {oracle.result}"
    left_out = [(each.step, each.key) for each in coordinator.failures if each.on_error == "skip_key"]
    if set(left_out) != oracle.left_out or len(left_out) != len(oracle.left_out):
        return f"seed {seed}: left out {left_out} instead of {oracle.left_out}"
    skipped = [each for each in coordinator.failures if each.on_error == "skip_step"]
    if sorted(each.step for each in skipped) != sorted(oracle.skipped):
        return f"seed {seed}: skipped {skipped} instead of {oracle.skipped}"
    if any(each.key not in oracle.skipped[each.step] for each in skipped):
        return f"seed {seed}: skipped {skipped} instead of {oracle.skipped}"
    return None


class Aloud:
    """Prints what happens."""

    def event(self, event: Any) -> None:
        where = f"step {event.step} {event.key!r} {event.gens} {event.value!r}"
        print(f"{event.what:<12} {where} batch {event.attempt}{' ahead' * event.speculative}")  # noqa: T201


def tell(seed: int) -> None:
    """Print the schedule of a seed."""
    coordinator, steps, inputs = play(seed)
    coordinator.notifier = coordinator.emission._notifier = Notifier([Aloud()])
    coordinator.finality._notifier = coordinator.error_policy._notifier = coordinator.notifier
    for step in steps:
        print(step.kind, {name: getattr(step, name) for name in Step._settings})  # noqa: T201
    print(inputs, wrong(seed), sep="\n")  # noqa: T201
    coordinator.run()


if __name__ == "__main__":
    tell(int(sys.argv[1]))
