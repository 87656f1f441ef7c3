"""The checks of a definition: what they name must be there before anything is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

import pyarrow as pa

from trueline.chain.schema import to_arrow
from trueline.check import DatasetCheck
from trueline.dataset.checks import answers, condition_of
from trueline.dataset.duration import seconds
from trueline.errors import InputError, SchemaError
from trueline.workspace.cuts.roots import RootHead
from trueline.workspace.dependencies import Dependencies, referred

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trueline.chain.datatypes import DataSchema
    from trueline.identity.multihash import Multihash
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


def check_definition(
    workspace: Workspace, checks: Sequence[DatasetCheck], schema: DataSchema | None
) -> tuple[DatasetCheck, ...]:
    """Refuse checks that name columns or datasets that are not there, or conditions that are none.

    Without a schema the first rows decide the columns, and the checks with them. What is returned knows
    other datasets by their ids.
    """
    for check in checks:
        if check.kind == "max_age":
            seconds(check.option("age"))
        if schema is not None:
            _check_columns(check, schema)
        if check.kind == "relation":
            _check_relation(workspace, check)
    return bound(workspace, checks)


def bound(workspace: Workspace, checks: Sequence[DatasetCheck]) -> tuple[DatasetCheck, ...]:
    """Return checks that know the datasets they refer to by their ids, as far as these are here."""
    names = workspace._names_by_id()
    found = []
    for check in checks:
        name = referred(check, names)
        at = name is not None and workspace[name].id if name in workspace else None
        found.append(check.about(str(at)) if at else check)
    return tuple(found)


def refuse_circle_of_checks(workspace: Workspace, name: str, checks: Sequence[DatasetCheck]) -> None:
    """Refuse relations to what is computed from the dataset itself: it would have to be there before."""
    known = Dependencies.of(workspace)
    for check in checks:
        other = referred(check, workspace._names_by_id())
        if other in known.nodes and name in known.upstream(str(other)):
            raise InputError(
                f"{name!r} cannot be judged by {check}: {other!r} comes after it",
                remedy=f"let {other!r} have a check of its own",
                code="Cycle",
                way=(name, other),
            )


@dataclass
class RelatedColumns:
    """How checks read a column of another dataset: at these blocks, else at its newest commit.

    Where each was read is kept in `judged_at`, so that a commit can say it.
    """

    workspace: Workspace
    at: Mapping[str, Multihash | None] = field(default_factory=dict)
    judged_at: dict[str, str] = field(default_factory=dict)

    def __call__(self, check: DatasetCheck) -> Iterator[pa.Table]:
        """Yield the column that a check refers to."""
        name, column = referred(check, self.workspace._names_by_id()), str(check.option("other"))
        dataset = self.workspace[name or str(check.option("dataset"))]
        block = self._block(dataset)
        if block is None:
            return
        self.judged_at[str(dataset.id)] = str(block)
        view = dataset.view(block)
        if column in view.columns:
            yield from (pa.Table.from_batches([batch]) for batch in view.batches([column]))

    def _block(self, dataset: Dataset) -> Multihash | None:
        if str(dataset.id) in self.at:
            return self.at[str(dataset.id)]
        newest = RootHead.of(dataset.chain).position
        return None if newest is None else newest.block


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
    dataset = workspace[referred(check, workspace._names_by_id()) or check.option("dataset")]
    other = check.option("other")
    if dataset.columns and other not in dataset.columns:
        raise SchemaError(
            f"the check {check} names a column {other!r} that {dataset.name!r} does not have",
            remedy=f"the columns are {', '.join(dataset.columns)}",
            code="CheckColumn",
            column=other,
        )
