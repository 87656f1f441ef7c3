"""The index from offsets to slices, and the event times it remembers of them."""

from __future__ import annotations

import sqlite3

import pytest

from tests.chain.growing import add_rows, grow_root, info
from tests.chain.stores import CountingStore
from trueline.chain import Chain


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trades.sqlite"


@pytest.fixture
def chain(path):
    return grow_root(Chain(CountingStore(), index=path), 30)


def spans(chain, *asked):
    return [(entry.first, entry.last) for entry in chain.slices(*asked)]


def test_only_slices_that_touch_the_offsets_are_listed_and_no_block_is_read(chain):
    chain.store.reset()
    assert spans(chain, 15, 30) == [(10, 19), (20, 29), (30, 39)]
    assert spans(chain, 299, 10_000) == [(290, 299)]
    assert spans(chain, 300, 400) == spans(chain, 5, 4) == []
    assert chain.store.block_reads == 0


def test_slices_come_in_pages_without_gap_or_repetition(chain):
    grow_root(chain, 2100)
    assert spans(chain, 0, 1 << 60) == [(n * 10, n * 10 + 9) for n in range(2130)]


def test_slices_after_a_position_are_not_listed(chain):
    tenth = chain.entry_number(11)
    assert spans(chain, 0, 1 << 60, tenth.hash)[-1] == (90, 99)


def test_times_are_unknown_until_somebody_has_looked(chain):
    one, two, *_ = chain.slices(0, 299)
    assert one.times is None
    chain.keep_times({one.block: (-5, 7), two.block: (None, None)})
    assert [entry.times for entry in chain.slices(0, 29)] == [(-5, 7), (None, None), None]


def test_times_are_kept_for_the_next_process(chain, path):
    first = next(chain.slices(0, 0))
    chain.keep_times({first.block: (1, 2)})
    chain._index.close()
    assert next(Chain(chain.store, index=path).slices(0, 0)).times == (1, 2)


def test_times_go_with_the_block_they_belong_to(chain):
    last = list(chain.slices(0, 299))[-1]
    chain.keep_times({last.block: (1, 2)})
    chain.reset(chain.entry_number(last.sequence_number - 1).hash)
    chain.append(info(chain, "another branch"))
    chain.append(add_rows(chain))
    assert list(chain.slices(0, 299))[-1].times is None


def test_damaged_times_are_forgotten_and_not_believed(chain, path):
    first = next(chain.slices(0, 0))
    chain.keep_times({first.block: (1, 2)})
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE slice_time SET high = 1")
    assert next(chain.slices(0, 0)).times is None


@pytest.mark.parametrize("where", ["start = 100", "start >= 290", "start < 20"])
def test_a_slice_lost_from_the_index_is_found_again(chain, path, where):
    whole = spans(chain, 0, 299)
    with sqlite3.connect(path) as connection:
        connection.execute(f"DELETE FROM slice WHERE {where}")
    assert spans(chain, 0, 299) == whole


def test_an_index_that_cannot_be_written_costs_only_the_memory_of_times(chain, monkeypatch):
    from trueline.chain.index_rows import Unusable

    def refuse(times):
        raise Unusable("read-only")

    monkeypatch.setattr(chain._index, "keep_times", refuse)
    chain.keep_times({next(chain.slices(0, 0)).block: (1, 2)})
    assert next(chain.slices(0, 0)).times is None
