"""How a state takes an update: the rows are the same whichever way, the files whoever wrote them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dataset.state.rows import applied, content, delta, reopened
from tests.dataset.state.test_state import CHANGES, MAX, small_groups  # noqa: F401 (a fixture)
from trueline.chain.store.memory import MemoryStore
from trueline.dataset.state import State, rewrite
from trueline.dataset.state.rewrite import LARGE, extended
from trueline.kernel.tasks import InlineTasks


@pytest.fixture(autouse=True)
def few_are_merged(monkeypatch):
    """Updates are merged with what is there though that is little."""
    monkeypatch.setattr(rewrite, "MERGED_AT_LEAST", 1)


def there(state: State) -> int:
    return sum(info.rows for generation in state.generations for info in generation)


@settings(max_examples=MAX, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES, as_files=st.data())
def test_every_update_is_taken_however_large_and_however_it_comes(changes, as_files):
    state, rows = State.open(MemoryStore(), None), {}
    for change in changes:
        update, rows = delta(change), applied(rows, change)
        after = [
            extended(state, [part], InlineTasks(), updated=0) for part in (update, state.write_part(update))
        ]
        assert after[0].files == after[1].files
        state = reopened(after[as_files.draw(st.integers(0, 1))])
        assert content(state) == rows


@pytest.mark.parametrize(("updated", "generations"), [(49, 2), (50, 1), (150, 1)])
def test_an_update_of_half_of_the_rows_is_merged_with_them_and_written_once(updated, generations):
    state = State.open(MemoryStore(), None).apply(delta(dict.fromkeys(range(100), "old")))
    assert (updated >= LARGE * there(state)) == (generations == 1)
    after = extended(state, [delta(dict.fromkeys(range(updated), "new"))], InlineTasks(), updated=0)
    assert len(after.generations) == generations
    assert there(after) == (100 + updated if generations == 2 else max(100, updated))
    assert set(content(after).values()) == ({"new"} if updated >= 100 else {"old", "new"})


def test_an_update_of_all_rows_does_not_read_what_it_replaces():
    state = reopened(State.open(MemoryStore(), None).apply(delta(dict.fromkeys(range(100), "old"))))
    after = extended(state, [delta(dict.fromkeys(range(100), "new"))], InlineTasks(), updated=100)
    assert state.reads.groups == 0
    assert set(content(after).values()) == {"new"}


def test_small_states_and_those_beyond_one_file_take_an_update_beside_what_they_have(monkeypatch):
    before = State.open(MemoryStore(), None).apply(delta(dict.fromkeys(range(100), "old")))
    update = delta(dict.fromkeys(range(80), "new"))
    for at_least, most in ((101, 1 << 20), (1, 179)):
        monkeypatch.setattr(rewrite, "MERGED_AT_LEAST", at_least)
        monkeypatch.setattr(rewrite, "ROWS_OF_A_FILE", most)
        assert len(extended(before, [update], InlineTasks(), updated=0).generations) == 2
