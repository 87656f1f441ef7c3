"""A flow run in process: chance comes from a seed, so the same seed and input give the same run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from trueline.errors import EndlessLoop, FlowError, InputError
from trueline.flow.compiled import CompiledFlow
from trueline.flow.machine import Firing, Machine

Inputs = Mapping[str, Iterable[Any]] | Mapping[tuple[str, int], Iterable[Any]]
"""What sources are fed with: by name, or by name and member."""

PIECE: Final = 4096
"""How many elements of one source arrive together in `run`: few enough to bound what waits."""
STEPS: Final = 1_000_000
"""Firings without rest after which a flow is called endless."""


class Interpreter:
    """A flow that runs in this process, one firing at a time.

    Half of the choices are eager, half by chance, all from the seed. The firing rule is the simulator's
    (A38), so whatever comes out is among the traces it explores. Of a live value only the newest version
    is kept, and of streams what was not yet taken: see `flow.explain()`.

    >>> from trueline.flow import Flow, nondet
    >>> flow = Flow("sums")
    >>> p = flow.process("p")
    >>> sums = p.source("numbers").fold(0, lambda total, x: total + x)
    >>> p.sink("sums", sums.snapshot(p.tick(), nondet("the last is the sum")).all_ticks())
    >>> live = flow.start(seed=1)
    >>> live.send("numbers", 1, 2, 3)
    >>> live.run_until_idle() > 0, live.take("sums")[-1]
    (True, 6)
    """

    def __init__(self, compiled: CompiledFlow, seed: int = 0) -> None:
        self.compiled = compiled
        self.seed = seed
        self.machine = Machine(compiled, intermediates=False, in_place=True)
        self.steps = 0
        self._random = random.Random(seed)  # noqa: S311 schedules, not secrets
        self._broken: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return f"<Interpreter of {self.compiled.graph.name}, seed {self.seed}, {self.steps} steps>"

    def _choose(self, ways: int, _: Any) -> int:
        return 0 if self._random.random() < 0.5 else self._random.randrange(ways)

    def watch(self, observer: Callable[[Firing], None] | None) -> None:
        """Call a function with every firing: what was handed over, the cuts, what came out."""
        self.machine.observer = observer

    def send(self, source: str, *values: Any, member: int = 0) -> None:
        """Let values arrive at a source."""
        self._refuse_broken()
        self._keep_whole(lambda: self.machine.send(source, *values, member=member))
        self._wake()

    def step(self) -> bool:
        """Let one thing happen; False if nothing can before something is sent."""
        self._refuse_broken()
        if self.machine.idle:
            return False
        self._keep_whole(lambda: self.machine.fire(self._choose))
        self.steps += 1
        return True

    def run_until_idle(self, limit: int = STEPS) -> int:
        """Step until nothing is left to do; returns how many steps that took."""
        for done in range(limit):
            if not self.step():
                return done
        if self.machine.idle:
            return limit
        names = ", ".join(unit.name for unit in self.machine.ready())
        raise EndlessLoop(
            f"flow {self.compiled.graph.name!r} still has work to do after {limit} steps; ready now: {names}",
            remedy="feed back less than is taken, or give a larger limit",
        )

    def take(self, sink: str, member: int = 0) -> tuple[Any, ...]:
        """What has come out of a sink since the last time."""
        return self.machine.take(sink, member)

    # --- among other tasks --------------------------------------------------------------

    async def next(self, sink: str, member: int = 0) -> Any:
        """Wait for the next element of a sink, stepping while there is something to do."""
        while not self.machine.outputs(sink, member):
            if self.step():
                await asyncio.sleep(0)  # others may send in between
                continue
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return self.machine.take_one(sink, member=member)

    async def elements(self, sink: str, member: int = 0) -> AsyncIterator[Any]:
        """The elements of a sink as they come."""
        while True:
            yield await self.next(sink, member)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- failure ------------------------------------------------------------------------

    def _keep_whole(self, work: Callable[[], None]) -> None:
        """Remember a failure: state changed in place cannot be gone back to."""
        try:
            work()
        except BaseException as error:  # Ctrl-C too
            if not isinstance(error, InputError) or error.fields.get("node") is not None:
                self._broken = error
            raise

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise FlowError(
                f"{self!r} has failed before: {self._broken}",
                remedy="fix the function and start the flow again",
            ) from self._broken


def run(compiled: CompiledFlow, inputs: Inputs, seed: int = 0) -> dict[str, list[Any]]:
    """Feed all inputs piece by piece, in turns by chance, and collect what comes out until all is at rest."""
    live = Interpreter(compiled, seed)
    turns = random.Random(seed)  # noqa: S311 schedules, not secrets
    left = {key if isinstance(key, tuple) else (key, 0): _each(key, values) for key, values in _named(inputs)}
    for name, member in left:
        live.send(name, member=member)
    outputs: dict[str, list[Any]] = {name: [] for name, _ in compiled.sinks}

    def collect() -> None:
        for name, member in compiled.sinks:
            outputs[name].extend(live.take(name, member))

    while left:
        name, member = turns.choice(list(left))
        piece = tuple(islice(left[name, member], turns.choice((1, 2, 16, PIECE))))
        if not piece:
            del left[name, member]
            continue
        live.send(name, *piece, member=member)
        for _ in range(turns.randrange(4)):
            live.step()
        if len(piece) == PIECE:
            live.run_until_idle()
        collect()
    live.run_until_idle()
    collect()
    return outputs


def _named(inputs: Inputs) -> Iterable[tuple[Any, Iterable[Any]]]:
    given: object = inputs
    if not isinstance(given, Mapping):
        raise InputError(
            f"run is given {inputs!r}, which is not a mapping",
            remedy="name the sources: run({'source': values})",
        )
    return inputs.items()


def _each(source: Any, values: Iterable[Any]) -> Iterator[Any]:
    try:
        return iter(values)
    except TypeError:
        raise InputError(
            f"source {source!r} is given {values!r}, which cannot be iterated",
            remedy="give a list of elements, or an iterator",
        ) from None
