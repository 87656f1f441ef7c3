from __future__ import annotations

import pytest

from tests.chain.growing import add_rows, begin_derivative, dataset_id, derive, grow_root
from trueline.chain import Block, Chain, Folder, MemoryStore
from trueline.chain.checkpoint import CheckpointFile, StateFile
from trueline.chain.events import AddData, Checkpoint
from trueline.chain.head_state import next_add_data, next_block
from trueline.chain.rule import BlockPosition
from trueline.chain.verify import ProblemKind, verify_blocks, verify_objects
from trueline.identity.multihash import Multihash


class Tampered(MemoryStore):
    """A store that hands out other bytes for some objects, or none."""

    def __init__(self) -> None:
        super().__init__()
        self.instead: dict[Multihash, bytes | None] = {}

    def get(self, folder, name, *, limit=None):
        raw = self.instead.get(name, super().get(folder, name, limit=limit))
        return raw if raw is not None else super().get(folder, Multihash.of(b"gone"))

    def size(self, folder, name):
        if name in self.instead:
            raw = self.instead[name]
            return None if raw is None else len(raw)
        return super().size(folder, name)


@pytest.fixture
def store():
    return Tampered()


@pytest.fixture
def chain(store):
    return grow_root(Chain(store), 8)


def test_a_whole_chain_is_fine(chain):
    report = verify_blocks(chain)
    assert report.ok
    assert (report.blocks, report.findings, report.not_checked) == (10, (), ())


def test_an_empty_chain_is_fine():
    assert verify_blocks(Chain(MemoryStore())).ok


def test_every_block_is_read_once(chain):
    reads = []
    get = chain.store.get
    chain.store.get = lambda folder, name, limit=None: reads.append(name) or get(folder, name, limit=limit)
    assert verify_blocks(chain).ok
    assert len(reads) == len(set(reads)) == 10


@pytest.mark.parametrize("number", range(10))
def test_a_changed_block_is_named_wherever_it_is(chain, store, number):
    name = chain.entry_number(number).hash
    raw = bytearray(store.get(Folder.BLOCKS, name))
    raw[-1] ^= 0xFF
    store.instead[name] = bytes(raw)
    (problem,) = verify_blocks(chain).problems
    assert problem.kind is ProblemKind.CORRUPT
    assert (problem.block, problem.sequence_number, problem.rule) == (name, number, "chain:C7")
    assert str(name) in problem.message


def test_a_missing_block_is_named(chain, store):
    name = chain.entry_number(4).hash
    store.instead[name] = None
    (problem,) = verify_blocks(chain).problems
    assert (problem.kind, problem.block) == (ProblemKind.MISSING, name)


def test_a_damaged_chain_without_an_index_is_reported_not_raised(chain, store):
    store.instead[chain.entry_number(4).hash] = b"garbage"
    (problem,) = verify_blocks(Chain(store)).problems
    assert problem.kind is ProblemKind.CORRUPT


def test_a_block_that_breaks_a_rule_is_found_though_its_hash_is_right(chain, store):
    """Written past the rules, as a careless tool would."""
    tail = chain.tail()
    event = AddData(prev_offset=3, new_data=add_rows(chain).event.new_data)
    bad = Block(
        system_time=tail.system_time,
        prev_block_hash=tail.head,
        sequence_number=tail.sequence_number + 1,
        event=event,
    )
    store.put(Folder.BLOCKS, bad.to_bytes())
    store.move_head(bad.hash, expected=tail.head)
    (problem,) = verify_blocks(Chain(store)).problems
    assert problem.rule == "chain:D1"
    assert problem.block == bad.hash


def test_stricter_rules_are_findings_in_a_foreign_chain(store):
    chain = grow_root(Chain(store), 0)
    event = AddData(prev_offset=4, new_checkpoint=Checkpoint(Multihash.of(b"c"), 1))
    chain.append(next_block(chain.tail(), event), strict=False)
    report = verify_blocks(chain)
    assert report.ok
    assert [finding.rule for _, finding in report.findings] == ["chain:R1"]


def test_an_interval_is_verified_by_reading_only_it(chain):
    names = [entry.hash for entry in chain.entries()]
    report = verify_blocks(chain, names[3], names[7])
    assert (report.ok, report.blocks) == (True, 4)


def test_rules_on_inputs_are_checked_where_the_inputs_are_known():
    source = grow_root(Chain(MemoryStore()), 2, number=7)
    inputs = {dataset_id(7): source}
    chain = begin_derivative(Chain(MemoryStore()), [dataset_id(7)])
    chain.append(derive(chain, inputs, 3))
    assert verify_blocks(chain).not_checked == ("chain:R4", "chain:R5", "chain:R10")
    chain.inputs = inputs
    assert verify_blocks(chain).not_checked == ()
    source.reset(source.entry_number(1).hash)
    report = verify_blocks(chain)
    assert report.ok
    assert {finding.rule for _, finding in report.findings} == {"chain:R4"}


def test_an_index_that_lies_is_thrown_away(tmp_path):
    store, path = MemoryStore(), tmp_path / "i.sqlite"
    grow_root(Chain(store, index=path), 5)
    other = grow_root(Chain(MemoryStore(), index=tmp_path / "other.sqlite"), 5, rows=3)
    chain = Chain(store, index=path)
    assert verify_blocks(chain).ok
    # The rows of another chain, with good check sums: only the links can tell.
    import sqlite3

    other._index.close()
    with sqlite3.connect(path) as connection:
        connection.execute("ATTACH ? AS other", (str(tmp_path / "other.sqlite"),))
        connection.execute("DELETE FROM event WHERE seq = 3")
        connection.execute("INSERT INTO event SELECT * FROM other.event WHERE seq = 3")
    for name, block in [(item.hash, item) for item in other.store.list(Folder.BLOCKS)]:
        store.put(Folder.BLOCKS, other.store.get(Folder.BLOCKS, name))
        assert block
    store.sync()
    assert verify_blocks(chain).ok


def with_objects(chain: Chain) -> tuple[Multihash, Multihash, Multihash]:
    store = chain.store
    data = store.put(Folder.DATA, b"rows")
    state = store.put(Folder.CHECKPOINTS, b"state")
    text = CheckpointFile((StateFile(state, 5),)).to_bytes()
    checkpoint = store.put(Folder.CHECKPOINTS, text)
    tail = chain.tail()
    slice_ = add_rows(chain).event.new_data
    new = type(slice_)(slice_.logical_hash, data, slice_.offset_interval, 4)
    event = next_add_data(tail, new_data=new, new_checkpoint=Checkpoint(checkpoint, len(text)))
    chain.append(next_block(tail, event))
    return data, checkpoint, state


def test_objects_are_checked_by_size_and_hash(store):
    chain = grow_root(Chain(store), 0)
    names = with_objects(chain)
    report = verify_objects(chain)
    assert (report.ok, report.objects) == (True, 3)
    for name, wrong, kind in (
        (names[0], b"r0ws", ProblemKind.CORRUPT),
        (names[0], b"row", ProblemKind.CORRUPT),
        (names[0], None, ProblemKind.MISSING),
        (names[2], b"stale", ProblemKind.CORRUPT),
        (names[2], None, ProblemKind.MISSING),
        (names[1], None, ProblemKind.MISSING),
    ):
        store.instead = {name: wrong}
        problems = verify_objects(chain).problems
        assert [(problem.kind, problem.sequence_number) for problem in problems] == [(kind, 2)]
        assert str(name) in problems[0].message


def place(found: BlockPosition | None) -> tuple[int, int | None, bool] | None:
    return None if found is None else (found.sequence_number, found.last_offset, found.is_end)


def test_an_input_is_asked_by_the_page(monkeypatch):
    """Blocks of an input are found in pages read ahead; those outside them one by one, with equal answers."""
    from trueline.chain.verify import Pinned

    source = grow_root(Chain(MemoryStore()), 30, number=7)
    names = [entry.hash for entry in source.entries()]
    positions = source._index.positions
    monkeypatch.setattr(source._index, "positions", lambda after, upto: positions(after, upto, 5))
    pinned = Pinned(source)
    for name in (*names[::3], names[1], Multihash.of(b"elsewhere"), *names[::-1]):
        assert place(pinned.entry(name)) == place(source.entry(name))
    other = Multihash("f1220" + names[3].digest.hex())
    assert pinned.entry(other) is None
