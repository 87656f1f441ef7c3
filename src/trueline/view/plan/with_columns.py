"""Columns computed from those there are: row to row, nothing about rows changes."""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from trueline import types as t
from trueline.identity import RowIds
from trueline.view.expressions import Expression, expression, named_in
from trueline.view.plan.node import Node, OneInput, OwnSchema, Want
from trueline.view.plan.select import Select
from trueline.view.schema import Field, Schema, renamed


class RowKernel(Protocol):
    """A function over columns of some rows, whose result for a row depends on that row alone.

    It can be pickled, holds no state, and gives a row the same bytes whatever rows are beside it.
    """

    @property
    def inputs(self) -> tuple[int, ...]:
        """The columns of the input that it reads."""

    @property
    def outputs(self) -> tuple[Field, ...]:
        """The columns it makes."""

    @property
    def text(self) -> str:
        """What it does, for people."""

    def run(self, arrays: Sequence[pa.Array], rows: int, ids: RowIds | None) -> Sequence[pa.Array]:
        """Return the columns it makes; `ids` are there if `needs_ids`."""

    @property
    def needs_ids(self) -> bool:
        """Whether it asks who the rows are."""


@dataclass(frozen=True)
class CopiedColumn:
    """A new column that is one of the input's, by its place there."""

    field: Field
    place: int


@dataclass(frozen=True)
class MadeColumn:
    """A column that is made: by which kernel, which of its outputs."""

    kernel: int
    output: int


@dataclass(frozen=True, eq=False)
class WithColumns(OwnSchema, OneInput):
    """Columns of the input, and columns made from them; `line` says place by place which."""

    line: tuple[int | MadeColumn, ...]
    columns: Schema
    kernels: tuple[RowKernel, ...]

    @property
    def title(self) -> str:
        return f"with {', '.join(kernel.text for kernel in self.kernels)}"

    def divided(self, want: Want) -> tuple[list[int], list[int]]:
        """Return the columns that are passed on, and the kernels whose columns are wanted."""
        places = [self.line[index] for index in want.columns]
        passed = [place for place in places if isinstance(place, int)]
        return passed, sorted({place.kernel for place in places if isinstance(place, MadeColumn)})

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The columns passed on, and what the kernels need whose columns are wanted (view:C35)."""
        passed, kernels = self.divided(want)
        needed = dict.fromkeys([*passed, *(c for k in kernels for c in self.kernels[k].inputs)])
        ids = want.ids or any(self.kernels[k].needs_ids for k in kernels)
        bounds = {
            place: each for index, each in want.bounds.items() if isinstance(place := self.line[index], int)
        }
        return (want.of(tuple(needed), ids=ids).within(bounds),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """A column that no kernel makes is one of the input's."""
        place = self.line[column]
        return (0, place) if isinstance(place, int) else None


def computed(below: Node, new: Sequence[RowKernel | CopiedColumn]) -> WithColumns | Select:
    """Add the columns that kernels make, and copies, each where its name says (view:C8, view:C9)."""
    kernels: list[RowKernel] = []
    fields: list[tuple[int | MadeColumn, Field]] = []
    for each in new:
        if isinstance(each, CopiedColumn):
            fields.append((each.place, each.field))
        else:
            fields += [(MadeColumn(len(kernels), output), field) for output, field in enumerate(each.outputs)]
            kernels.append(each)
    schema, line = placed(below.schema, fields)
    if not kernels:
        return Select(below, tuple(place for place in line if isinstance(place, int)), schema)
    return WithColumns(below, line, schema, tuple(kernels))


def placed(
    schema: Schema, new: Sequence[tuple[int | MadeColumn, Field]]
) -> tuple[Schema, tuple[int | MadeColumn, ...]]:
    """Add columns to a schema; say place by place which column of the input is there, or what is made."""
    added, old = schema.added([each for _, each in new])
    # A new column keeps its order among those of its name; `added` places them in the order given.
    waiting: dict[str, list[int | MadeColumn]] = {}
    for made, field in new:
        waiting.setdefault(field.name, []).append(made)
    line = tuple(
        place if place is not None else waiting[column.name].pop(0)
        for place, column in zip(old, added, strict=True)
    )
    return added, line


# --- by expressions -------------------------------------------------------------------------


@dataclass(frozen=True)
class Compute:
    """One expression, as a kernel."""

    name: str
    expression: Expression
    inputs: tuple[int, ...]
    outputs: tuple[Field, ...]
    needs_ids: bool = False

    @property
    def text(self) -> str:
        return f"{self.name} = {self.expression.text}"

    def run(self, arrays: Sequence[pa.Array], rows: int, ids: RowIds | None) -> Sequence[pa.Array]:
        """Return the values, null where there is no answer (decision 5)."""
        del ids
        names = list(self.expression.columns)
        batch = pa.RecordBatch.from_arrays(list(arrays), names=names)
        found = self.expression.values(batch, rows)
        target = self.outputs[0].type.arrow
        return [found if found.type == target else found.cast(target)]


@dataclass(frozen=True)
class RowIdColumn:
    """The row id as a column (view:C80)."""

    name: str
    inputs: tuple[int, ...] = ()
    needs_ids: bool = True

    @property
    def outputs(self) -> tuple[Field, ...]:
        return (Field(self.name, t.rowid, nullable=False),)

    @property
    def text(self) -> str:
        return f"{self.name} = row id"

    def run(self, arrays: Sequence[pa.Array], rows: int, ids: RowIds | None) -> Sequence[pa.Array]:
        """Return the ids."""
        assert ids is not None
        return [ids.to_arrow()]


def with_columns(
    below: Node, columns: Mapping[str, str], parameters: Mapping[str, object]
) -> WithColumns | Select:
    """Add columns computed from those there are; a column that is just another one *is* that one.

    What is computed has no annotations; what is another column has those of that one (view:C23).
    """
    new: list[RowKernel | CopiedColumn] = []
    for name, text in columns.items():
        used = {each: parameters[each] for each in named_in(text) if each in parameters}
        found = expression(text, below.schema.to_arrow(), used)
        if found.column is not None:
            old = below.schema[found.column]
            new.append(CopiedColumn(renamed(old, name), old.index))
            continue
        inputs = tuple(below.schema[column].index for column in found.columns)
        new.append(Compute(name, found, inputs, (Field(name, found.kind),)))
    return computed(below, new)


def quoted(name: str) -> str:
    """Write a name so that an expression reads it as a column, whatever is in it.

    >>> quoted("unit price")
    '`unit price`'
    """
    return f"`{name.replace('`', '``')}`"


def conversion(name: str, kind: t.Type) -> str:
    """Write the call that gives a column another type.

    >>> conversion("unit price", t.int64)
    'with_columns({"unit price": "cast(`unit price` as int64)"})'
    """
    text = f"cast({quoted(name)} as {kind})"
    if name.isidentifier() and not keyword.iskeyword(name):
        return f'with_columns({name}="{text}")'
    return f"with_columns({{{json.dumps(name, ensure_ascii=False)}: {json.dumps(text, ensure_ascii=False)}}})"
