"""The checks of a definition: what they name must be there before anything is recorded."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import pyarrow as pa

from trueline.chain.schema import to_arrow
from trueline.check import DatasetCheck
from trueline.dataset.checks import answers, condition_of
from trueline.dataset.duration import seconds
from trueline.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trueline.chain.datatypes import DataSchema
    from trueline.chain.head_state import Position
    from trueline.dataset.append.intake import ColumnOf
    from trueline.identity.dataset_id import DatasetId
    from trueline.workspace.workspace import Workspace


def check_definition(workspace: Workspace, checks: Sequence[DatasetCheck], schema: DataSchema | None) -> None:
    """Refuse checks that name columns or datasets that are not there, or conditions that are none.

    Without a schema the first rows decide the columns, and the checks with them.
    """
    for check in checks:
        if check.kind == "max_age":
            seconds(check.option("age"))
        if schema is not None:
            _check_columns(check, schema)
        if check.kind == "relation":
            _check_relation(workspace, check)


def columns_of(workspace: Workspace, at: Mapping[DatasetId, Position] | None = None) -> ColumnOf:
    """Return how checks read a column of another dataset: at these positions, else as it is now."""

    def read(name: str, column: str) -> Iterator[pa.Table]:
        dataset = workspace[name]
        position = (at or {}).get(dataset.id)
        view = dataset.view(None if position is None else position.block)
        if column in view.columns:
            yield from (pa.Table.from_batches([batch]) for batch in view.batches([column]))

    return read


def _check_columns(check: DatasetCheck, schema: DataSchema) -> None:
    known = list(schema.names[4:]) or list(schema.names)
    for name in check.columns:
        if name not in schema.names:
            close = get_close_matches(name, known, n=1)
            raise SchemaError(
                f"the check {check} names a column {name!r} that is not there",
                remedy=f"did you mean {close[0]!r}?" if close else f"the columns are {', '.join(known)}",
                code="CheckColumn",
                column=name,
            )
    if check.by_row and check.kind != "not_null":
        text, parameters = condition_of(check)
        answers(to_arrow(schema).empty_table(), text, parameters)


def _check_relation(workspace: Workspace, check: DatasetCheck) -> None:
    dataset = workspace[check.option("dataset")]
    other = check.option("other")
    if dataset.columns and other not in dataset.columns:
        raise SchemaError(
            f"the check {check} names a column {other!r} that {dataset.name!r} does not have",
            remedy=f"the columns are {', '.join(dataset.columns)}",
            code="CheckColumn",
            column=other,
        )
