"""A derived dataset whose rows have another key than before: all go under the old one, then come back.

Rows of the old key are deleted before those of the new one are inserted, so whoever folds the events by
either key ends with the rows of the new one.
"""

from __future__ import annotations

from dataclasses import replace

from trueline.chain.chain import Chain
from trueline.chain.events import ExecuteTransform
from trueline.chain.head_state import Tail
from trueline.chain.instant import Instant
from trueline.dataset.append.append import Order, Prepared, watermark_after
from trueline.dataset.append.incoming import no_rows
from trueline.dataset.append.merge import MergeOutcome, Terms, merge_pieces
from trueline.dataset.append.slices import SliceLayout, write_all
from trueline.dataset.checks import CheckedCommit, without_broken
from trueline.dataset.derivation import Derivation, checks_at, derivation_at
from trueline.merge import Snapshot


def earlier_key(chain: Chain, tail: Tail, derivation: Derivation) -> tuple[Tail, tuple[str, ...]] | None:
    """Return where the rows that are there were last set, and their key, if that is another one."""
    if not tail.redefined or not isinstance(tail.data, ExecuteTransform):
        return None
    # Only definitions follow the last data block.
    before = next(
        (chain.tail_at(name) for name, block in chain.walk(tail.head) if block.event == tail.data), None
    )
    there = derivation_at(before) if before is not None else None
    if before is None or there is None or there.key == derivation.key:
        return None
    return before, there.key


def prepare_rekeyed(
    chain: Chain, tail: Tail, before: tuple[Tail, tuple[str, ...]], order: Order, terms: Terms
) -> Prepared:
    """Merge and write what retracts every row under its old key and inserts all rows under the new one."""
    there, old_key = before
    tasks = terms.tasks
    checks = checks_at(tail)
    incoming, left_out = without_broken(checks, order.incoming.for_tail(tail), order.strategy, terms)
    system_time = Instant(max((order.clock or Instant.now)(), tail.system_time + 1))
    terms = replace(terms, allow_empty=True)
    gone = merge_pieces(Snapshot(old_key), no_rows(tail), chain, there, terms)
    count = sum(piece.rows for piece in gone.pieces)
    # Nothing is there any more: no state, and offsets that follow the deletes.
    assert isinstance(tail.data, ExecuteTransform)
    last = tail.next_offset + count - 1
    emptied = tail._replace(data=_at_offset(tail.data, None if last < 0 else last))
    assert isinstance(order.strategy, Snapshot)
    came = merge_pieces(order.strategy, incoming, chain, emptied, terms)
    growth = came.tally.growth + gone.tally.growth
    judged = CheckedCommit(order.name, chain, tail, came.pieces, growth, order.column_of, alone=True)
    found = {**left_out, **judged.judge(checks, tasks, is_replay=order.is_replay)}
    layout = SliceLayout(incoming.schema, incoming.vocab, system_time, tail.watermark, whole_pairs=True)
    written = write_all(chain.store, gone.pieces, layout, tail.next_offset, tasks)
    written = [*written, *write_all(chain.store, came.pieces, layout, tail.next_offset + count, tasks)]
    pieces, tally, passed = (*gone.pieces, *came.pieces), gone.tally + came.tally, gone.passed + came.passed
    outcome = MergeOutcome(pieces, came.state, came.ignored, tally, passed)
    watermark = watermark_after(tail, incoming.newest, order.watermark, order.lateness_ns)
    return Prepared(tail, incoming, outcome, written, system_time, watermark, came.tally.growth, found)


def _at_offset(event: ExecuteTransform, last: int | None) -> ExecuteTransform:
    return replace(event, prev_offset=last, new_data=None, prev_checkpoint=None, new_checkpoint=None)
