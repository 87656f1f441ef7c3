"""How many rows of a dataset are current: recorded by its commits, else counted once."""

from __future__ import annotations

from trueline.chain.block import record_of
from trueline.chain.chain import Chain
from trueline.chain.counts import Counts, derived_counts, keep_counts, kept_counts, left_by
from trueline.chain.events import AddData
from trueline.chain.head_state import Tail
from trueline.dataset.remove.record import removals_of


def current_rows(chain: Chain, tail: Tail) -> int | None:
    """Return how many rows are current at a tail, without reading any; None if that is not known.

    Where no row is replaced these are the records, less those that were removed.
    """
    if tail.last_offset is None:
        return 0
    if not tail.replaces_rows:
        return tail.next_offset - removals_of(chain).count(tail.last_offset)
    if isinstance(tail.data, AddData):
        recorded = record_of(tail.data).current_rows
    else:
        recorded = derived_counts(left_by(chain, tail.data)).current
    return recorded if recorded is not None else kept_counts(chain, tail.head).current


def counted_rows(chain: Chain, tail: Tail) -> int:
    """Return how many rows are current at a tail; where no commit says it they are counted, once."""
    known = current_rows(chain, tail)
    if known is not None:
        return known
    # Reading rows is only needed here; looking at metadata would pay for importing it.
    from trueline.dataset.dataset_at import Standing
    from trueline.dataset.read.current import CurrentRows
    from trueline.view.plan.node import NO_BOUNDS

    standing = Standing("", chain, tail, tail.position)
    offset = str(standing.vocab.offset)
    found: int = sum(
        batch.num_rows for batch in CurrentRows(standing, (offset,)).batches([offset], NO_BOUNDS)
    )
    keep_counts(chain, {tail.head: Counts(current=found)})
    return found
