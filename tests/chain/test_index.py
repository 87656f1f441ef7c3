from __future__ import annotations

import random
import sqlite3

import pytest

from tests.chain.growing import add_rows, begin_derivative, dataset_id, derive, grow_root, info, multi_part
from trueline.chain import Chain, MemoryStore
from trueline.chain.index import Index
from trueline.chain.index_rows import Damaged
from trueline.identity.multihash import Multihash


@pytest.fixture
def path(tmp_path):
    return tmp_path / "index" / "trades.sqlite"


def everything(path) -> dict[str, list[tuple]]:
    """All rows of all tables, but for what was added last, which says how it grew."""
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM meta WHERE key = 'last'")
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: sorted(map(repr, connection.execute(f"SELECT * FROM {table}"))) for table in tables}


class Reads:
    """Counts the blocks a chain reads."""

    def __init__(self, chain: Chain) -> None:
        self.count = 0
        read = chain.block

        def counted(name):
            self.count += 1
            return read(name)

        chain.block = counted


def test_it_is_the_same_whether_it_grew_or_was_rebuilt(path):
    store = MemoryStore()
    chain = grow_root(Chain(store, index=path), 20)
    chain.append(*multi_part(chain, 3))
    chain.append(info(chain, "words"))
    grown = everything(path)
    assert chain.rebuild_index() == 26
    assert everything(path) == grown


def test_it_is_the_same_for_a_derivative(path):
    sources = {dataset_id(n): grow_root(Chain(MemoryStore()), n, number=n) for n in (1, 2)}
    chain = begin_derivative(Chain(MemoryStore(), sources, index=path), list(sources))
    for step in range(10):
        grow_root(sources[dataset_id(1)], 1)
        if step % 3 == 0:
            grow_root(sources[dataset_id(2)], 1)
        chain.append(derive(chain, sources, rows=step % 2))
    grown = everything(path)
    chain.rebuild_index()
    assert everything(path) == grown
    assert len(grown["taken"]) == 20


def test_how_far_an_input_was_read_is_found_by_number_and_not_by_a_walk(path, monkeypatch):
    source = {dataset_id(1): grow_root(Chain(MemoryStore()), 1, number=1)}
    chain = begin_derivative(Chain(MemoryStore(), source, index=path), list(source))
    for _ in range(3):
        grow_root(source[dataset_id(1)], 1)
        chain.append(derive(chain, source, rows=1))
    asked, rows = [], Index._rows
    monkeypatch.setattr(Index, "_rows", lambda *given: asked.append(given) or rows(*given))
    assert chain._index.taken(str(dataset_id(1)), 0, chain.tail().sequence_number) is not None
    ((index, query, *values),) = asked
    plan = [row[-1] for row in rows(index, f"EXPLAIN QUERY PLAN {query}", *values)]
    assert len(plan) == 1
    assert plan[0].startswith("SEARCH taken"), plan
    assert "taken_offset" not in plan[0], "that goes through all offsets of the input"


def test_a_missing_index_is_made_anew(path):
    store = MemoryStore()
    chain = grow_root(Chain(store, index=path), 5)
    expected = chain.tail()
    chain._index.discard()
    assert Chain(store, index=path).tail() == expected
    assert path.exists()


def test_a_stale_index_reads_only_the_blocks_it_does_not_know(path):
    store = MemoryStore()
    grow_root(Chain(store, index=path), 50)
    writer = grow_root(Chain(store), 3)
    reader = Chain(store, index=path)
    reads = Reads(reader)
    assert reader.tail() == writer.tail()
    # Three new blocks, each once to find the way and once to be added; then head, seed, data and schema.
    assert reads.count <= 3 * 2 + 4


def test_an_index_ahead_of_the_head_is_cut_back(path):
    store = MemoryStore()
    chain = grow_root(Chain(store, index=path), 10)
    middle = chain.entry_number(6).hash
    Chain(store).reset(middle)
    reader = Chain(store, index=path)
    assert reader.tail().head == middle
    assert reader.sequence_of(chain.head) == 6
    grow_root(reader, 2, rows=3)
    assert Chain(store, index=path).tail() == Chain(store).tail()


def test_an_index_of_another_branch_is_mended_from_the_fork(path):
    store = MemoryStore()
    chain = grow_root(Chain(store, index=path), 10)
    fork = chain.entry_number(6).hash
    other = Chain(store)
    other.reset(fork)
    grow_root(other, 9, rows=2)
    reader = Chain(store, index=path)
    assert reader.tail() == other.tail()
    assert [entry.hash for entry in reader.entries()] == [entry.hash for entry in other.entries()]


def test_two_chains_on_one_file_keep_each_other_current(path):
    store = MemoryStore()
    one, two = Chain(store, index=path), Chain(store, index=path)
    grow_root(one, 1)
    for _ in range(10):
        grow_root(two, 1)
        grow_root(one, 2)
    assert one.tail() == two.tail()
    assert len(list(two.entries())) == 33
    grown = everything(path)
    one.rebuild_index()
    assert everything(path) == grown


def test_a_reader_that_saw_an_older_head_does_not_cut_the_index_back(path):
    """It read the head, then others committed and extended the index."""
    store = MemoryStore()
    writer = grow_root(Chain(store, index=path), 5)
    old = writer.head
    reader = Chain(store, index=path)
    grow_root(writer, 3)
    head, answers = store.head, [old]
    store.head = lambda ref="head": answers.pop() if answers else head()
    assert reader.tail().head == old
    assert reader._index.tip().hash == head()


@pytest.mark.parametrize("garbage", [b"", b"not a database at all, but long enough to be one" * 50])
def test_a_file_that_is_no_database_is_replaced(path, garbage):
    store = MemoryStore()
    expected = grow_root(Chain(store), 5).tail()
    path.parent.mkdir()
    path.write_bytes(garbage)
    assert Chain(store, index=path).tail() == expected


def test_a_file_of_another_layout_is_replaced(path):
    store = MemoryStore()
    expected = grow_root(Chain(store), 5).tail()
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert Chain(store, index=path).tail() == expected


@pytest.mark.parametrize("seed", range(40))
def test_damage_anywhere_is_noticed_or_harmless(path, seed):
    """Bytes are changed all over the file; answers stay those of the blocks."""
    store = MemoryStore()
    chain = grow_root(Chain(store, index=path), 60)
    chain._index.close()
    oracle = Chain(store)
    randomness = random.Random(seed)
    raw = bytearray(path.read_bytes())
    for _ in range(randomness.choice([1, 3, 30, 300])):
        raw[randomness.randrange(len(raw))] = randomness.randrange(256)
    path.write_bytes(raw)
    reader = Chain(store, index=path)
    assert reader.tail() == oracle.tail()
    assert [entry.hash for entry in reader.entries()] == [entry.hash for entry in oracle.entries()]
    grow_root(reader, 2)
    assert Chain(store, index=path).tail() == Chain(store).tail()


def test_a_row_that_was_changed_does_not_check_out(path):
    store = MemoryStore()
    grow_root(Chain(store, index=path), 5)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE event SET last_offset = 3 WHERE seq = 4")
    index = Index(path)
    with pytest.raises(Damaged):
        index.at(4)
    chain = Chain(store, index=path)
    assert chain.last_offset_at(chain.entry_number(4).hash) == 29


def test_a_row_that_is_gone_is_missed(path):
    store = MemoryStore()
    grow_root(Chain(store, index=path), 5)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM event WHERE seq = 4")
    assert len(list(Chain(store, index=path).entries())) == 7


def test_a_place_that_cannot_be_written_is_done_without(tmp_path):
    store = MemoryStore()
    expected = grow_root(Chain(store), 5).tail()
    (tmp_path / "file").write_text("a file where the folder should be")
    chain = Chain(store, index=tmp_path / "file" / "index.sqlite")
    assert chain.tail() == expected
    grow_root(chain, 1)
    assert chain.tail().last_offset == 59


def test_an_index_in_memory_starts_from_the_file(path):
    store = MemoryStore()
    grow_root(Chain(store, index=path), 30)
    index = Index(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert index.in_memory().tip() == index.tip()


@pytest.mark.parametrize("blocks", [10, 100, 1000])
def test_opening_planning_and_appending_read_the_same_few_blocks_at_any_length(path, blocks):
    store = MemoryStore()
    grow_root(Chain(store, index=path), blocks)
    chain = Chain(store, index=path)
    reads = Reads(chain)
    chain.tail()
    assert reads.count == 4  # head, seed, last data event, schema
    block = add_rows(chain)
    chain.append(block)
    assert reads.count == 4


def test_offsets_of_hostile_size_fit(path):
    """A foreign chain may carry any 64 bits; strict rules are findings there."""
    from trueline.chain.events import AddData, Checkpoint
    from trueline.chain.head_state import next_block

    store = MemoryStore()
    chain = grow_root(Chain(store, index=path), 0)
    event = AddData(prev_offset=(1 << 64) - 1, new_checkpoint=Checkpoint(Multihash.of(b"x"), 1))
    done = chain.append(next_block(chain.tail(), event), strict=False)
    assert [finding.rule for finding in done.findings] == ["chain:R1"]
    assert Chain(store, index=path).last_offset_at(done.head) == (1 << 64) - 1


def test_after_a_restart_of_the_machine_the_file_is_looked_through(path, monkeypatch):
    """A power cut may tear a file that is never synced; pages of rows nobody asks for would go unnoticed."""
    store = MemoryStore()
    chain = grow_root(Chain(store, index=path), 200)
    chain._index.close()
    raw = bytearray(path.read_bytes())
    raw[-4096:] = bytes(4096)
    path.write_bytes(raw)
    monkeypatch.setattr("trueline.chain.index._boot", lambda: "another")
    fresh = Chain(store, index=path)
    fresh.tail()
    fresh._index.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert connection.execute("SELECT count(*) FROM event").fetchone()[0] == 202


def test_a_chain_that_mixes_data_events_is_found_through(path):
    """Nothing here writes one, but one may come from elsewhere."""
    from trueline.chain.events import AddData, Checkpoint, ExecuteTransform, SetInfo
    from trueline.chain.head_state import next_block

    store = MemoryStore()
    chain = begin_derivative(Chain(store, index=path), [dataset_id(1)])
    kinds = [
        AddData,
        AddData,
        ExecuteTransform,
        SetInfo,
        AddData,
        ExecuteTransform,
        ExecuteTransform,
        SetInfo,
    ]
    for step, kind in enumerate(kinds):
        tail = chain.tail()
        mark = Checkpoint(Multihash.of(b"%d" % step), 1)
        if kind is SetInfo:
            event = SetInfo(str(step))
        elif kind is AddData:
            event = AddData(prev_checkpoint=tail.checkpoint, new_checkpoint=mark)
        else:
            inputs = derive(chain, {}).event.query_inputs
            event = ExecuteTransform(inputs, prev_checkpoint=tail.checkpoint, new_checkpoint=mark)
        chain.append(next_block(tail, event), strict=False)
    reader = Chain(store, index=path)
    for kind in (AddData, ExecuteTransform, SetInfo):
        expected = [3 + step for step, one in enumerate(kinds) if one is kind][::-1]
        found = [reader.newest(kind, nth=nth) for nth in range(len(expected) + 1)]
        assert [block and block.sequence_number for block in found] == [*expected, None]
    assert reader.newest(AddData, ExecuteTransform, nth=3).sequence_number == 5


def test_files_are_found_by_content_and_by_name(path):
    from trueline.chain.block import CommitRecord

    store = MemoryStore()
    chain = grow_root(Chain(store, index=path), 1)
    one, two = Multihash.of(b"one"), Multihash.of(b"two")
    for content in (one, two):
        notes = {"files": [{"name": "a.csv", "hash": str(content)}, "garbage", {"name": 3}]}
        chain.append(add_rows(chain, extra=CommitRecord(notes=notes).to_extra()))
    for reader in (chain, Chain(store), Chain(store, index=path)):
        assert reader.file(one).sequence_number == 3
        assert reader.file(Multihash.of(b"three")) is None
        assert reader.file_named("a.csv") == (two, reader.entry_number(4))
        assert reader.file_named("b.csv") is None


def test_a_part_of_a_hash_is_found_by_a_range_whatever_the_length_of_the_chain():
    steps = {}
    for length in (20, 600):
        chain = Chain(MemoryStore())
        grow_root(chain, length)
        names = [entry.hash for entry in chain.entries()]
        count = 0

        def counted() -> None:
            nonlocal count
            count += 1

        chain._index._open().set_progress_handler(counted, 1)
        for name in names[:5]:
            for digits in (4, 5, 7, 8, 9, 31, 64):
                begin, end = name[5 : 5 + digits], name[-digits:]
                expected = [n for n in names if n[5:].startswith(begin) or n.endswith(end)]
                assert [entry.hash for entry in chain.entries_like(begin=begin, end=end)] == expected
        assert chain.entries_like(begin="0" * 12, end="0" * 12) == []
        assert Chain(MemoryStore()).entries_like(begin="abcd") == []
        steps[length] = count
    assert steps[600] < 1.5 * steps[20]
