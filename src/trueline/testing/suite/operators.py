"""K2, K6, K11, K17 and K19 for operators: what they read of their input, and what it may look like."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.testing.instruments import Fault, Watched, repeated, sparse_table
from trueline.testing.kit import Broken, NotApplicable, holds
from trueline.testing.protocol import ViewLike
from trueline.testing.read import RowsRead, difference, drain, same
from trueline.testing.subjects import ComponentSubject, Operator, ViewSubject
from trueline.testing.threads import at_once
from trueline.view import Field, Schema, View
from trueline.view.annotations import (
    CATEGORICAL_RANGES,
    CATEGORY_VALUES,
    IS_NORMALISED,
    SCORE_KIND,
    SLOT_NAMES,
    Annotation,
    Annotations,
)

_MOST_COLUMNS: Final = 12
# Four times what it may read ahead: enough to see that it stops.
_MANY: Final = 4


def _operator(subject: ComponentSubject) -> Operator:
    assert isinstance(subject.component, Operator)
    return subject.component


def _table(subject: ComponentSubject) -> pa.Table:
    table: pa.Table = subject.sample.to_arrow().combine_chunks()
    return table


def _rows(view: ViewLike) -> RowsRead:
    return ViewSubject(view).read()


@holds("operator", "K2.fuzzed", "view:C20", "view:C21", "view:C22")
def fuzzed(subject: ComponentSubject) -> None:
    """Invalid annotations of the input count as absent: nothing raises and no value changes."""
    operator, table = _operator(subject), _table(subject)
    plain = Schema([Field(each.name, t.of(each)) for each in table.schema])
    wrong = Annotations(
        {
            SLOT_NAMES: Annotation(t.int64, 7),
            CATEGORY_VALUES: Annotation(t.vector(t.text), ["too", "few"]),
            CATEGORICAL_RANGES: Annotation(t.text, "0-3"),
            IS_NORMALISED: Annotation(t.text, "perhaps"),
            SCORE_KIND: Annotation(t.vector(t.float64, 2), [0.5, 0.5]),
            "nonsense": Annotation(t.binary, b"\xff\x00"),
        }
    )
    bad = Schema([Field(each.name, each.type, wrong) for each in plain])
    arrays = [table.column(place).combine_chunks() for place in range(table.num_columns)]
    clean = _rows(operator.make(View.from_arrow(pa.table(arrays, schema=plain.to_arrow()))))
    found = _rows(operator.make(View.from_arrow(pa.table(arrays, schema=bad.to_arrow()))))
    same(
        clean,
        found,
        "invalid annotations change the result",
        "read annotations with the functions of trueline.view.annotations: invalid ones are None",
    )


@holds("operator", "K6.opening", "view:C32", "view:C11")
def opening(subject: ComponentSubject) -> None:
    """Making the view, its schema, cursors and getters reads nothing."""
    source = Watched(_table(subject), parts=3)
    view = _operator(subject).make(source.view)
    cursors = [view.cursor(list(range(len(view.schema)))), *view.cursor_set(None, n=3)]
    for cursor in cursors:
        for column in view.schema.names:
            cursor.getter(column)
        cursor.close()
    if source.log.rows:
        raise Broken(
            f"{source.log.rows} rows of the input were read before the first move",
            "read in move_next(), not when the view or the cursor is made",
        )


@holds("operator", "K6.columns", "view:C35")
def columns(subject: ComponentSubject) -> None:
    """Reading a column reads the columns of the input that it depends on, and no others."""
    operator, table = _operator(subject), _table(subject)
    if table.num_columns > _MOST_COLUMNS or table.num_rows < 2:
        raise NotApplicable(f"the sample has more than {_MOST_COLUMNS} columns, or fewer than 2 rows")
    changes = {name: list(_changed(table, name)) for name in table.column_names}
    expected = _rows(operator.make(Watched(table).view))
    if not expected.ids:
        raise NotApplicable("it gives no rows, so nothing shows what they depend on")
    others = {
        name: [_rows(operator.make(Watched(each).view)) for each in changed]
        for name, changed in changes.items()
    }
    count = len(operator.make(Watched(table).view).schema)
    for column in range(count):
        source = Watched(table)
        view = operator.make(source.view)
        ViewSubject(view).read([column])
        for name in sorted(source.log.touched):
            if changes[name] and not any(_depends(expected, other, column) for other in others[name]):
                raise Broken(
                    f"reading it reads {name!r} of the input, on which it does not depend",
                    "ask the input for what the columns asked for need",
                    column=view.schema[column].name,
                )


def _changed(table: pa.Table, name: str) -> Iterator[pa.Table]:
    """Yield the table with other values in a column: reversed, shuffled, and all null."""
    place, array = table.column_names.index(name), table.column(name).combine_chunks()
    mixed = np.random.default_rng(0).permutation(len(array))
    taken = [array.take(pa.array(order)) for order in (np.arange(len(array))[::-1], mixed)]
    if all(each.equals(array) for each in taken):
        return  # every row has the same value: no change shows whether anything depends on it
    for new in [*taken, pa.nulls(len(array), array.type)]:
        yield table.set_column(place, table.schema.field(place).with_nullable(True), new)


def _depends(expected: RowsRead, other: RowsRead, column: int) -> bool:
    return expected.ids != other.ids or any(
        one[column] != two[column] for one, two in zip(expected.values, other.values, strict=False)
    )


@holds("operator", "K6.rows", "view:C36")
def rows(subject: ComponentSubject) -> None:
    """Reading the first row reads about as much of the input as that takes."""
    operator = _operator(subject)
    if operator.blocking:
        raise NotApplicable("it is declared as blocking")
    many = _MANY * operator.ahead
    table, at_once = repeated(_table(subject), many), max(8, operator.ahead // 50)
    if not table.num_rows:
        raise NotApplicable("the sample has no rows")
    with operator.make(Watched(table, at_once).view).cursor([]) as cursor:
        given = len(drain(cursor, [], most=many // 2))
    if given < many // 2:
        raise NotApplicable("it gives few rows")
    source = Watched(table, at_once)
    with operator.make(source.view).cursor(None) as cursor:
        cursor.move_next()
    if source.log.rows > operator.ahead:
        raise Broken(
            f"{source.log.rows} of {table.num_rows} rows of the input were read for the first row",
            "read as rows are asked for; say Operator(…, ahead=…) if it takes more, blocking=True if all",
        )


@holds("operator", "K11.raising", "view:C69")
def raising(subject: ComponentSubject) -> None:
    """An error of the input reaches the reader; the other members of a set end."""
    operator, table = _operator(subject), _table(subject)
    healthy = _rows(operator.make(Watched(table, parts=3).view))
    broken = Watched(table, parts=3, breaks=table.num_rows // 2).view
    remedy = "raise what the input raised, from move_next(), and let the other members end"
    try:
        found = _rows(operator.make(broken))
    except Exception as error:
        if not _from_fault(error):
            raise
    else:
        if difference(healthy, found) is None:
            raise NotApplicable("it does not read as far as the row that is broken")
        raise Broken("an error of the input is treated as its end", remedy)
    view = operator.make(broken)
    cursors = list(view.cursor_set(None, n=3))
    raised = at_once([partial(_error_of, cursor) for cursor in cursors], subject.patience, "members", remedy)
    for cursor in cursors:
        cursor.close()
    if not any(error is not None and _from_fault(error) for error in raised):
        raise Broken("no member of a set raises an error of the input", remedy)


def _error_of(cursor: object) -> Exception | None:
    try:
        while cursor.move_next():  # type: ignore[attr-defined]
            pass
    except Exception as error:  # noqa: BLE001 (it is examined)
        return error
    return None


def _from_fault(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Fault):
            return True
        error = error.__cause__ or error.__context__
    return False


@holds("operator", "K17.encoding", "view:C107")
def encoding(subject: ComponentSubject) -> None:
    """Vectors that come sparse give the same result as the same vectors dense."""
    operator, table = _operator(subject), _table(subject)
    encoded = sparse_table(table)
    if encoded is None:
        raise NotApplicable("no column of the sample holds vectors of numbers")
    expected = _rows(operator.make(View.from_arrow(table)))
    found = _rows(operator.make(View.from_arrow(encoded)))
    same(
        expected,
        found,
        "sparse vectors give a different result",
        "read vectors through trueline.kernel.vectors",
    )


@holds("operator", "K19.transparent", "view:C104", "view:C88")
def transparent(subject: ComponentSubject) -> None:
    """A cache has the columns, rows, ids and values of its input, and can be shuffled."""
    operator = _operator(subject)
    if not operator.caches:
        raise NotApplicable("it is not declared as a cache")
    view = operator.make(subject.sample)
    if view.schema != subject.sample.schema:
        raise Broken(
            "a cache has different columns from its input", "keep columns of every type, hidden ones too"
        )
    same(
        _rows(subject.sample),
        _rows(view),
        "a cache has different rows from its input",
        "return the rows of the input unchanged",
    )
    if not view.can_shuffle:
        raise Broken("a cache cannot be shuffled", "set can_shuffle: what is kept can be read in any order")
    if view.row_count is None:
        raise Broken(
            "a cache that was filled does not know its number of rows", "return row_count once it is known"
        )


@holds("operator", "K19.once", "view:C104")
def once(subject: ComponentSubject) -> None:
    """A cache reads each cell of its input once."""
    operator, table = _operator(subject), _table(subject)
    if not operator.caches:
        raise NotApplicable("it is not declared as a cache")
    source = Watched(table)
    reader = ViewSubject(operator.make(source.view))
    reader.read([0] if table.num_columns else [])
    for _ in range(2):
        reader.read()
        reader.read_set(3)
        reader.read(seed=1)
    for name, count in source.log.cells.items():
        if count > table.num_rows:
            raise Broken(
                f"{count} cells of {name!r} were read of a sample of {table.num_rows} rows",
                "keep what was read, and fill what is missing once",
                column=name,
            )
