"""A coordinator that is held, at every move, to what generations and final bits promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.run.manual import Told
from trueline.run import Step
from trueline.run.attempt import Attempt
from trueline.run.coordinator import Coordinator
from trueline.run.step_state import StepState


class Watched(Coordinator):
    """Checks each move; the contract that is broken stands in the message."""

    def __init__(self, *given: Any, **named: Any) -> None:
        told = Told()
        super().__init__(*given, **named | {"observers": (*named.get("observers", ()), told)})
        self.told, self.sent = told, set[int]()
        self.producer = -1
        self.bits: list[str] = []
        self.emitted: dict[tuple[int, Any], tuple[int, ...]] = {}
        self.drawn: list[list[int]] = [[] for _ in self.states]
        self.came: list[set[Any]] = [set() for _ in self.states]
        self.calls: dict[tuple[int, Any], int] = {}
        self._wrap()

    def _wrap(self) -> None:
        self.emission.broadcast = self._broadcast(self.emission.broadcast)  # type: ignore[method-assign]
        self.executor.submit = self._submit(self.executor.submit)  # type: ignore[method-assign]
        self.finality.advance = self._bits(self.finality.advance)  # type: ignore[method-assign]
        for line in self.states:
            line.deliver = self._deliver(line, line.deliver)  # type: ignore[method-assign]
            line.accept = self._accept(line, line.accept)  # type: ignore[method-assign]
            line.next_generation = self._drawn(line, line.next_generation)  # type: ignore[method-assign]

    def _broadcast(self, broadcast: Callable[..., None]) -> Callable[..., None]:
        def watched(producer: int, entries: dict[Any, Any]) -> None:
            for key, (gens, _) in entries.items():
                assert len(gens) == len(self.states), "F1"
                if producer < 0:
                    assert key in self.fed, "F2"
                    continue
                self.sent.add(gens[producer])
                assert gens[producer] > 0, "F1"
                assert not any(gens[producer + 1 :]), "F1"
                last = self.emitted.get((producer, key))
                assert last is None or gens > last, "F4"
                self.emitted[(producer, key)] = gens
                assert not self.states[producer].outputs_final, "F12"
            outer, self.producer = self.producer, producer
            broadcast(producer, entries)
            self.producer = outer

        return watched

    def _mapped(self, state: StepState, *more: Any) -> None:
        self._one_stamp(state, super()._mapped, *more)

    def _wrote(self, state: StepState, *more: Any) -> None:
        self._one_stamp(state, super()._wrote, *more)

    def _one_stamp(self, state: StepState, done: Callable[..., None], *more: Any) -> None:
        """What a batch sends and what observers are given of it have one generation."""
        self.told.events.clear()
        self.sent.clear()
        done(state, *more)
        changed = [event for event in self.told.events if event.what == "changed"]
        assert len({event.gens[state.index] for event in changed} | self.sent) <= 1, "F9"

    def _deliver(self, line: StepState, deliver: Callable[..., Any]) -> Callable[..., Any]:
        def watched(entries: dict[Any, Any]) -> Any:
            assert self.producer < line.index, "F8"
            assert not line.inputs_final, "F14"
            if self.producer < 0:
                self.came[line.index] |= entries.keys()
            before = {key: line.accepted[key][0] for key in entries if key in line.accepted}
            found = deliver(entries)
            for key, gens in before.items():
                assert line.accepted[key][0] >= gens, "F3"
                waits = line.pending.get(key) or line.waiting.get(key)
                assert waits is None or waits[0] > gens, "F5"
            return found

        return watched

    def _accept(self, line: StepState, accept: Callable[..., None]) -> Callable[..., None]:
        def watched(batch: dict[Any, Any]) -> None:
            for key, (gens, _) in batch.items():
                assert key not in line.accepted or gens > line.accepted[key][0], "F3"
            accept(batch)

        return watched

    def _drawn(self, line: StepState, draw: Callable[[], int]) -> Callable[[], int]:
        def watched() -> int:
            found = draw()
            assert not self.drawn[line.index] or found > self.drawn[line.index][-1], "F9"
            self.drawn[line.index].append(found)
            return found

        return watched

    def _submit(self, submit: Callable[..., None]) -> Callable[..., None]:
        def watched(step: Step, attempt: Attempt, items: Sequence[tuple[Any, Any]]) -> None:
            line = self.states[attempt.index]
            limit, size = step.concurrency, step.batch_size
            assert limit is None or len(line.attempts) <= limit, "F17"
            running = sum(len(each.attempts) for each in self.states)
            assert running <= self.executor.workers, "F17"
            keys = [key for key, _ in items]
            assert len(keys) == len(set(keys)) >= 1, "F18"
            assert size is None or size < 0 or len(keys) <= size, "F18"
            for key in keys:
                place = (attempt.index, key)
                self.calls[place] = self.calls.get(place, 0) + 1
                if not step.eager:
                    assert self.finality.is_final(key, attempt.index), "F16"
                    assert self.calls[place] == 1, "F16"
            submit(step, attempt, items)

        return watched

    def _bits(self, advance: Callable[..., Any]) -> Callable[..., Any]:
        def watched(known: Any) -> Any:
            before = [(line.inputs_final, line.outputs_final) for line in self.states]
            found = advance(known)
            for index, (line, (was_in, was_out)) in enumerate(zip(self.states, before, strict=True)):
                assert line.inputs_final >= was_in, "F15"
                assert line.outputs_final >= was_out, "F15"
                if line.inputs_final and not was_in:
                    self.bits.append(f"in {index}")
                if line.outputs_final:
                    assert line.inputs_final, "F12"
                    assert line.is_idle, "F12"
                    if not was_out:
                        self.bits.append(f"out {index}")
                if index:
                    assert line.inputs_final == self.states[index - 1].outputs_final, "F13"
            return found

        return watched

    def run(self) -> dict[Any, Any]:
        found = super().run()
        expected = [f"{bit} {index}" for index in range(len(self.states)) for bit in ("in", "out")]
        assert self.bits == expected, "F15"
        for line in self.states:
            if not line.cancelled and line.step.matches_all:
                assert self.came[line.index] >= self.fed.keys(), "F2"
        return found
