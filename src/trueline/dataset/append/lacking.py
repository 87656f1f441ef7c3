"""What a frame or file lacks, columns or all rows, and what a strategy makes of it."""

from __future__ import annotations

from typing import Final

from trueline.chain.head_state import Tail
from trueline.chain.schema import fields_of, is_hidden
from trueline.dataset.append.incoming import Handed, Incoming
from trueline.dataset.merge.partial_rows import WHOLE, Lacking, Partial
from trueline.errors import InputError, SchemaError
from trueline.merge import Keyed, Snapshot, Upsert

ALLOW_EMPTY: Final = (
    "allow_empty=True (append, pull and trueline.source have it; in the shell it is --allow-empty)"
)


def lacking(strategy: Keyed, incoming: Incoming, tail: Tail) -> Partial:
    """Say what rows lack; a snapshot that lacks what it compares is refused.

    Which columns there are is known only now: others may have added some since the rows were read.
    """
    if not isinstance(strategy, Upsert | Snapshot):
        return WHOLE
    vocab, columns = incoming.vocab, incoming.columns
    hidden = {vocab.op, *strategy.key} | ({vocab.event_time} - {vocab.event_time_column})
    names = [name for name in columns.names if name not in hidden]
    parts, first = [], 0
    for part in incoming.handed_in:
        absent = frozenset(name for name in names if name not in part.columns)
        if absent:
            parts.append(Lacking(first, first + part.rows, absent, part.name))
        if isinstance(strategy, Snapshot) and part.rows:
            _refuse_compared(strategy, part, absent, tail)
        first += part.rows
    required = {field.name for field in columns if not field.nullable} | {vocab.event_time_column}
    return Partial(tuple(parts), frozenset(name for name in required if name is not None))


def _refuse_compared(strategy: Snapshot, part: Handed, absent: frozenset[str], tail: Tail) -> None:
    """Refuse a snapshot without a column that the dataset shows: its values would count as gone.

    Nobody sees a hidden one, so that who writes snapshots may leave it out.
    """
    fields = fields_of(tail.schema) if tail.schema is not None else ()
    known = {field.name for field in fields if not is_hidden(field)}
    missing = sorted(absent & known & set(strategy.compare or known))
    if missing:
        what = f"columns {', '.join(map(repr, missing))}" if len(missing) > 1 else f"column {missing[0]!r}"
        raise SchemaError(
            f"{part.name or 'the snapshot'} lacks {what}, and every value of it would count as gone",
            remedy=f"give {what} (null where there is no value); a snapshot that never has it is compared "
            "without: merge.snapshot(key, compare=[...])",
            code="SnapshotLacksColumn",
            columns=tuple(missing),
            path=part.name or None,
        )


def empty_snapshot(name: str | None, current: int | None = None) -> InputError:
    """The error of a snapshot without rows."""
    rows = "every row" if current is None else f"every row, {current:,} of them"
    return InputError(
        f"{name or 'the snapshot'} is empty, and as a snapshot it would retract {rows}",
        remedy=f"if there really are no rows left, say so with {ALLOW_EMPTY}",
        code="EmptySnapshot",
        path=name,
    )
