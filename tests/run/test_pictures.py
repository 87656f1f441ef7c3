"""The pictures of a run of two steps over one key, tuple by tuple."""

from __future__ import annotations

import pytest

from tests.run.manual import Manual, Told, left_first
from trueline.run import Step
from trueline.run.coordinator import Coordinator

NEXT = ({"A": "B"}, {"B": "C"})


def step(kind, index):
    """A step that makes the next letter, defined in one of the three ways."""

    def letter(value):
        return NEXT[index].get(value, value)

    ways = {
        "map": lambda key, value: letter(value),
        "flat_map": lambda key, value: [(key, letter(value))],
        "process": lambda items: [(key, key, letter(value)) for key, value in items],
    }
    return Step(**{kind: ways[kind]}, name=f"Step {index}")


@pytest.fixture(params=["map", "flat_map", "process"])
def pictured(request):
    """Two steps, of which one has counted to 4 and the other to 1, and one worker."""
    changes = [step(request.param, index) for index in (0, 1)]

    def make(workers, **more):
        coordinator = Coordinator(changes, Manual(left_first, workers), **more)
        coordinator.executor.start(changes, coordinator.inbox.post)
        coordinator.states[0].generation, coordinator.states[1].generation = 4, 1
        coordinator.inbox.feed({"k": "A"})
        coordinator.inbox.close()
        while not coordinator.inbox.queue.empty():
            coordinator._handle(coordinator.inbox.queue.get())
        return coordinator

    return make


def picture(coordinator):
    """Each step as it is drawn: incoming, in state, out state, next generation, final bits."""
    drawn = []
    for line in coordinator.states:
        incoming = {key: (value, gens) for key, (gens, value) in {**line.waiting, **line.pending}.items()}
        bits = ("F" if line.inputs_final else "-") + ("F" if line.outputs_final else "-")
        state = {key: value for key, (_, value) in line.accepted.items()}
        made = {key: made for writes in line.contributions.by_source.values() for key, made in writes.items()}
        drawn.append((incoming, state, {**line.changed, **made}, line.generation + 1, bits))
    return drawn


@pytest.mark.contract("run:F2")
@pytest.mark.contract("run:F12")
@pytest.mark.contract("run:F13")
def test_one_worker_goes_through_the_pictures(pictured):
    run = pictured(workers=1)
    came = {"k": ("A", (0, 0))}
    assert picture(run) == [(came, {}, {}, 5, "--"), (came, {}, {}, 2, "--")]

    # A is what step 0 works on; its input will not change.
    assert not run._advance()
    assert picture(run) == [({}, {"k": "A"}, {}, 6, "F-"), (came, {}, {}, 2, "--")]

    # It made B of A, in generation 5, from (0, 0); the coordinator has moved it on in the same turn.
    run._receive()
    made = {"k": ("B", (5, 0))}
    assert picture(run) == [({}, {"k": "A"}, {"k": "B"}, 6, "F-"), (made, {}, {}, 2, "--")]

    # Both final bits are set together, while B is still waiting in the queue; then step 1 takes it.
    assert run.finality.advance(run.emission.results) == []
    assert [bits for *_, bits in picture(run)] == ["FF", "F-"]
    assert picture(run)[1] == (made, {}, {}, 2, "F-")
    assert not run._advance()
    assert picture(run)[1] == ({}, {"k": "B"}, {}, 3, "F-")

    # It made C of B, in generation 2, from (5, 0).
    run._receive()
    assert run.emission.results == {"k": ((5, 2), "C")}
    assert run._advance()
    assert [bits for *_, bits in picture(run)] == ["FF", "FF"]
    assert [following for *_, following, _ in picture(run)] == [6, 3]


@pytest.mark.contract("run:F9")
def test_observers_are_given_the_tuples_of_the_pictures(pictured):
    told = Told()
    run = pictured(workers=1, observers=[told])
    while not run._advance():
        run._receive()
    changed = [(event.step, event.gens) for event in told.events if event.what == "changed"]
    assert changed == [(0, (5, 0)), (1, (5, 2))]


def test_two_workers_go_another_way_to_the_same_end(pictured):
    # Step 1 works ahead on A, in generation 2; B makes that useless, and is worked on in generation 3.
    run = pictured(workers=2)
    assert not run._advance()
    assert [line.accepted for line in run.states] == [{"k": ((0, 0), "A")}, {"k": ((0, 0), "A")}]
    run._receive()
    assert run.states[1].pending == {"k": ((5, 0), "B")}
    assert run.executor.useless == [2]
    while not run._advance():
        run._receive()
    assert run.emission.results == {"k": ((5, 3), "C")}


def test_a_step_that_is_not_eager_makes_one_value_of_many_under_the_greatest_generations():
    total = Step(process=lambda items: [(None, "sum", sum(value for _, value in items))], eager=False)
    odd = Step(map=lambda key, value: value + 100 if value % 2 else value)
    coordinator = Coordinator([odd, total], Manual(left_first, workers=1))
    coordinator.inbox.feed({"a": 1, "b": 2, "c": 3})
    coordinator.inbox.close()
    assert coordinator.run() == {"a": 101, "b": 2, "c": 103, "sum": 206}
    gens = {key: gens for key, (gens, _) in coordinator.emission.results.items()}
    # Batches of one key each at first: a was the first, c the last that step 0 changed.
    assert (gens["a"], gens["b"], gens["c"]) == ((1, 0), (0, 0), (2, 0))
    assert gens["sum"][0] == 2
    assert gens["sum"][1] > 0
