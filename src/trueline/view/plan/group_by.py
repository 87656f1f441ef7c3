"""A row for each group of rows with equal values.

A group's id is that of its first row, and groups come in the order of their first rows. Null is a value like
others, NaN is equal to NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trueline.errors import SchemaError
from trueline.kernel.aggregates import first
from trueline.view.expressions import named_in
from trueline.view.plan.aggregates import AggregateCall, ParsedAggregate, bound, needed, read
from trueline.view.plan.node import IdRule, Node, OneInput, OwnSchema, Want
from trueline.view.plan.select import selected
from trueline.view.plan.with_columns import quoted, with_columns
from trueline.view.schema import Column, Field, Schema, key_columns, unknown_column


@dataclass(frozen=True, eq=False)
class GroupBy(OwnSchema, OneInput):
    """The key of each group, and aggregates of its rows."""

    by: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    columns: Schema

    @property
    def id_rule(self) -> IdRule:
        """A group is known by its first row."""
        return IdRule.FIRST_ROW

    @property
    def title(self) -> str:
        key = ", ".join(self.below.schema[place].name for place in self.by)
        made = ", ".join(f"{each.name} = {each.text}" for each in self.calls)
        return f"grouped by {key or 'nothing'}{f', with {made}' if made else ''}"

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """Known by reading only."""
        return None

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The key, and what the aggregates read that are wanted (view:C35)."""
        calls = [self.calls[index - len(self.by)] for index in want.columns if index >= len(self.by)]
        return (want.of(tuple(dict.fromkeys((*self.by, *needed(calls))))),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """The key is the input's, and so is what the first row has, whose id a group's is."""
        if column < len(self.by):
            return 0, self.by[column]
        call = self.calls[column - len(self.by)]
        return (0, call.column) if call.kind.make is first and call.column is not None else None


def grouped(
    below: Node, by: Sequence[Column], aggregates: Mapping[str, str], parameters: Mapping[str, object]
) -> Node:
    """Group rows by columns and say what to make of them: aggregates, and expressions of aggregates."""
    readings = [read(name, text, window=False) for name, text in aggregates.items()]
    for each in readings:
        if any(column.name == each.name for column in by):
            raise SchemaError(
                f"{each.name!r} is a column of the key",
                remedy="give the aggregate another name",
                column=each.name,
            )
    if all(each.is_one_call for each in readings):
        return _grouped(below, by, aggregates, parameters)
    return _computed(below, by, readings, parameters)


def _grouped(
    below: Node, by: Sequence[Column], aggregates: Mapping[str, str], parameters: Mapping[str, object]
) -> GroupBy:
    node, asked = bound(below, aggregates, parameters, window=False)
    fields = [*(column.field for column in by), *(_field(each, node) for each in asked)]
    return GroupBy(node, tuple(column.index for column in by), tuple(asked), Schema(fields))


def _field(call: AggregateCall, node: Node) -> Field:
    """A value of the first row is the column's own, with all that is known of it."""
    if call.kind.make is first and call.column is not None:
        return replace(node.schema[call.column].field, name=call.name)
    return call.field


def _computed(
    below: Node, by: Sequence[Column], readings: Sequence[ParsedAggregate], parameters: Mapping[str, object]
) -> Node:
    """Compute expressions from aggregates, each of which is made once, in a column named as it is written."""
    taken = {column.name for column in by} | {each.name for each in readings}
    names: dict[str, str] = {}
    for each in readings:
        for call in each.calls:
            text = each.text[call.start : call.stop]
            name = text
            while name in taken:
                name += "'"
            names.setdefault(text, name)
    calls = {name: text for text, name in names.items()}
    groups = _grouped(below, by, calls, parameters)
    made = {each.name: each.expression(names) for each in readings}
    used = {each for text in made.values() for each in named_in(text)}
    try:
        node: Node = with_columns(groups, made, {k: v for k, v in parameters.items() if k in used})
    except SchemaError as error:
        raise _outside(error, below, by) from None
    wanted = [*(column.name for column in by), *(each.name for each in readings)]
    return selected(node, [node.schema[name].index for name in wanted])


def _outside(error: SchemaError, below: Node, by: Sequence[Column]) -> SchemaError:
    """Say of a column outside of all aggregates that a group has many values of it."""
    name = error.fields.get("column")
    if error.code != "UnknownColumn" or not isinstance(name, str):
        return error
    if name not in below.schema:
        return unknown_column(name, below.schema.names)
    key = ", ".join(column.name for column in by) or "nothing"
    return SchemaError(
        f"column {name!r} is outside all aggregates, and rows are grouped by {key}",
        remedy=f"say which of its values is meant, as in first({quoted(name)}), or group by it too",
        code="UnknownColumn",
        column=name,
    )


def distinct(below: Node, columns: Sequence[str]) -> Node:
    """Keep the first of the rows that are equal in some columns, or in all that can be seen."""
    schema = below.schema
    by = key_columns(schema, columns or schema.names, "distinct()")
    others = [column for column in schema.visible if column not in by]
    texts = {column.name: f"first({quoted(column.name)})" for column in others}
    groups = _grouped(below, by, texts, {})
    if groups.schema.names == schema.names:
        return groups
    return selected(groups, [groups.schema[name].index for name in schema.names])
