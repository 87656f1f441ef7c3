"""A removal that names records which do not exist yet: it must not swallow what is appended later."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from trueline.chain.block import CommitRecord
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import CheckpointFile, StateFile
from trueline.chain.events import Checkpoint
from trueline.chain.head_state import next_add_data, next_block
from trueline.chain.rule import NOTE
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.store import Folder
from trueline.dataset.remove.record import Loss, Removal, removals_of, token
from trueline.errors import ChainError
from trueline.identity.multihash import Multihash

pytestmark = pytest.mark.contract("guard:G7")


def forged(chain: Chain, **claims):
    """A block that records a removal as it is told to, and the checkpoint it names, which is stored."""
    tail = chain.tail()
    removal = Removal(1, tail.sequence_number + 1, "forged", 0, **claims)
    kept = [loss.replacement for loss in removal.losses if loss.replacement is not None]
    raw = CheckpointFile(tuple(kept), {NOTE: removal.to_note()}).to_bytes()
    with chain.store.lease():
        checkpoint = Checkpoint(chain.store.put(Folder.CHECKPOINTS, raw), len(raw))
        chain.store.sync()
    notes = {"idempotency_key": token(1), NOTE: {"reason": "forged", "rows": 0}}
    event = next_add_data(tail, new_checkpoint=checkpoint, extra=CommitRecord(notes=notes).to_extra())
    return next_block(tail, event)


def put_in(chain: Chain, block) -> None:
    """Write a block and move the head, as software without the rule does."""
    with chain.store.lease():
        chain.store.put(Folder.BLOCKS, block.to_bytes())
        chain.store.move_head(block.hash, expected=chain.head)


@pytest.fixture
def stranger(tmp_path):
    with tl.open(tmp_path / "stranger", create=True) as workspace:
        yield workspace


@pytest.fixture
def there(tmp_path):
    with tl.open(tmp_path / "there", create=True) as workspace:
        yield workspace


def xs(ds):
    return ds.view().to_arrow()["x"].to_pylist()


def place_of(workspace, name="trades"):
    return workspace._location.folder(name)


def test_rows_appended_after_a_removal_beyond_the_chain_are_read(stranger):
    ds = stranger.create("trades")
    ds.append(pa.table({"x": [1, 2]}))
    put_in(ds.chain, forged(ds.chain, upto=1_000_000))
    ds.append(pa.table({"x": [3, 4]}))
    assert xs(ds) == [1, 2, 3, 4]
    assert ds.view().removed == 0
    stranger.gc(older_than=0)
    assert xs(ds) == [1, 2, 3, 4]


@pytest.mark.parametrize("upto", [2, 3, 1 << 62])
def test_such_a_removal_is_refused_when_it_is_appended(stranger, upto):
    ds = stranger.create("trades")
    ds.append(pa.table({"x": [1, 2]}))
    head = ds.head
    with pytest.raises(ChainError, match="1 is the last") as caught:
        ds.chain.append(forged(ds.chain, upto=upto))
    assert caught.value.rule == "guard:G7"
    assert "up to 1" in caught.value.remedy
    assert ds.head == head


def test_a_removal_of_a_slice_that_is_yet_to_come_is_refused(stranger):
    ds = stranger.create("trades")
    ds.append(pa.table({"x": [1, 2]}))
    loss = Loss(Multihash.of(b"a slice of tomorrow"), 2, 3, 2, None)
    with pytest.raises(ChainError, match="offsets 2 to 3"):
        ds.chain.append(forged(ds.chain, losses=(loss,)))


def test_a_removal_from_an_empty_dataset_is_refused(stranger):
    ds = stranger.create("trades")
    with pytest.raises(ChainError, match="no record"):
        ds.chain.append(forged(ds.chain, upto=0))


def test_a_clone_has_the_rows_and_a_finding(stranger, there):
    ds = stranger.create("trades")
    ds.append(pa.table({"x": [1, 2]}))
    put_in(ds.chain, forged(ds.chain, upto=1_000_000))
    ds.append(pa.table({"x": [3, 4]}))
    clone = there.clone(place_of(stranger))
    assert xs(clone) == [1, 2, 3, 4]
    assert any("guard:G7" in line for line in clone.origin.findings)
    (finding,) = [found for _, found in clone.verify().findings]
    assert (finding.rule, finding.code) == ("guard:G7", "RemovalBeyondTheChain")
    assert not [problem for problem in clone.verify().problems if str(problem.kind) == "removed"]


def test_an_update_of_a_clone_deletes_nothing_for_it(stranger, there):
    """Both at once: the removal, and the rows it was to swallow."""
    ds = stranger.create("trades")
    ds.append(pa.table({"x": [1, 2]}))
    clone = there.clone(place_of(stranger))
    put_in(ds.chain, forged(ds.chain, upto=3))
    ds.append(pa.table({"x": [3, 4]}))
    there.clone(place_of(stranger))
    assert xs(clone) == [1, 2, 3, 4]
    assert clone.verify().ok


def test_a_removal_that_lists_a_later_slice_among_its_leftovers_does_not_delete_it(stranger, there, tmp_path):
    """`objects` names bytes that earlier blocks had; a slice of tomorrow is not among them."""
    ds = stranger.create("trades")
    ds.append(pa.table({"x": [1, 2]}))
    clone = there.clone(place_of(stranger))
    # What the next slice will be is found out on a copy.
    with tl.open(tmp_path / "rehearsal", create=True) as rehearsal:
        again = rehearsal.clone(place_of(stranger))
        block = forged(again.chain, objects=(Multihash.of(b"unknown"),))
        again.chain.append(block)
        again.append(pa.table({"x": [3, 4]}))
        later = again.chain.block(again.head)
        slice_name = later.data_event.new_data.physical_hash
        raw = again.chain.store.get(Folder.DATA, slice_name)
        put_in(ds.chain, forged(ds.chain, objects=(slice_name,)))
        tail = ds.chain.tail()
        with ds.chain.store.lease():
            ds.chain.store.put(Folder.DATA, raw)
            ds.chain.store.sync()
        event = next_add_data(
            tail, new_data=later.data_event.new_data, new_checkpoint=tail.data.new_checkpoint
        )
        put_in(ds.chain, next_block(tail, event, later.system_time))
    there.clone(place_of(stranger))
    assert xs(clone) == [1, 2, 3, 4]
    assert "missing" not in [str(problem.kind) for problem in clone.verify().problems]


def test_a_loss_counts_only_for_the_very_slice_it_describes(stranger):
    """The hash of a real slice with offsets that are not its own hides nothing."""
    ds = stranger.create("trades")
    ds.append(pa.table({"x": [1, 2]}))
    ds.append(pa.table({"x": [3, 4]}))
    second = ds.chain.block(ds.head).data_event.new_data.physical_hash
    put_in(ds.chain, forged(ds.chain, losses=(Loss(second, 0, 1, 2, None),)))
    assert xs(ds) == [1, 2, 3, 4]


def test_a_removal_of_what_exists_is_taken(stranger, there):
    ds = stranger.create("trades")
    ds.append(pa.table({"x": [1, 2]}))
    ds.append(pa.table({"x": [3, 4]}))
    ds.drop_data(where="x = 3", reason="one")
    ds.drop_data(upto=1, reason="two")
    clone = there.clone(place_of(stranger))
    assert xs(clone) == [4]
    assert not clone.verify().findings


@settings(max_examples=examples(40), deadline=None)
@given(
    before=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    after=st.lists(st.integers(1, 4), max_size=3),
    data=st.data(),
)
def test_no_removal_hides_what_comes_after_it(before, after, data):
    from tests.attacks.growing import appended, rows_of

    chain = Chain(MemoryStore())
    for rows in before:
        appended(chain, rows)
    count = sum(before)
    upto = data.draw(st.none() | st.integers(0, 2 * count + 5), label="upto")
    spans = st.tuples(st.integers(0, 2 * count), st.integers(0, 5))
    drawn = data.draw(st.lists(spans, max_size=2), label="losses")
    losses = tuple(
        Loss(Multihash.of(b"%d %d" % span), span[0], span[0] + span[1], span[1] + 1, None) for span in drawn
    )
    put_in(chain, forged(chain, upto=upto, losses=losses))
    for rows in after:
        appended(chain, rows)
    later = [row for row in rows_of(chain) if row >= count]
    assert later == list(range(count, count + sum(after)))
    assert all(removal.upto is None or removal.upto < count for removal in removals_of(chain).all)


def test_a_replacement_is_listed_by_the_checkpoint_that_names_it(stranger):
    ds = stranger.create("trades")
    ds.append(pa.table({"x": [1, 2]}))
    data = ds.chain.block(ds.head).data_event.new_data
    wide = Loss(data.physical_hash, 0, 9, 10, StateFile(data.physical_hash, data.size, {"replaces": "x"}))
    with pytest.raises(ChainError, match="offsets 0 to 9"):
        ds.chain.append(forged(ds.chain, losses=(wide,)))
