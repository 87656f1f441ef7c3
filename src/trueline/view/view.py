"""A view: exactly known rows, read lazily and by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from trueline.errors import InputError, SchemaError
from trueline.view.bounds import NO_BOUNDS
from trueline.view.expressions import condition
from trueline.view.origin import Origin
from trueline.view.plan import Filter, Part, Project, Scan, Sort, Step, gathered
from trueline.view.schema import Schema, unknown_column
from trueline.view.source import Source, TableSource

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

T = TypeVar("T")


class View:
    """Rows with names and types that are read when they are asked for, the same each time.

    A view is a value: every operation returns another one and reads nothing.
    It may be read from several threads at once.

    >>> view = View.from_rows([{"city": "Bern", "price": 9.5}, {"city": "Zug", "price": 30.0}])
    >>> view.filter("price > :limit", limit=10).select("city").to_arrow().to_pydict()
    {'city': ['Zug']}
    """

    __slots__ = ("_schema", "_spark", "_step")

    def __init__(self, source: Source | Step, spark: Callable[[], Any] | None = None) -> None:
        self._step: Step = source if not _is_source(source) else Scan(source)
        self._schema = Schema(self._step.schema)
        self._spark = spark

    # --- where rows come from -------------------------------------------------------

    @classmethod
    def from_arrow(cls, data: Any) -> Self:
        """View an Arrow table or batch, or anything with `__arrow_c_stream__` (polars, DuckDB …).

        >>> View.from_arrow(pa.table({"x": [1, 2]})).count()
        2
        """
        if isinstance(data, pa.RecordBatch):
            return cls(TableSource(pa.Table.from_batches([data])))
        if isinstance(data, pa.Table):
            return cls(TableSource(data))
        if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            return cls(TableSource(pa.table(data)))
        raise InputError(
            f"a {type(data).__name__} is not an Arrow table",
            remedy="give a table, a batch, or anything with __arrow_c_stream__; from_rows takes dictionaries",
        )

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> Self:
        """View a pandas frame; its index is left out, NaN in it is missing."""
        try:
            return cls(TableSource(pa.Table.from_pandas(frame, preserve_index=False)))
        except pa.ArrowException as error:
            raise SchemaError(
                f"the frame cannot be held by Arrow: {error}", remedy="cast the column"
            ) from None

    @classmethod
    def from_rows(cls, rows: Iterable[Any], schema: pa.Schema | None = None) -> Self:
        """View dictionaries or dataclasses; a name that a row lacks is missing there.

        >>> View.from_rows([{"x": 1}, {"y": "a"}]).to_arrow().to_pydict()
        {'x': [1, None], 'y': [None, 'a']}
        """
        plain = [_as_dict(row) for row in rows]
        names = schema.names if schema is not None else list(dict.fromkeys(n for row in plain for n in row))
        kinds = [schema.field(name).type if schema is not None else None for name in names]
        columns = []
        for name, kind in zip(names, kinds, strict=True):
            try:
                columns.append(pa.array([row.get(name) for row in plain], kind))
            except (pa.ArrowException, OverflowError, TypeError) as error:
                raise SchemaError(
                    f"column {name!r} holds values of no one type: {error}",
                    remedy="give values of one type, or a schema",
                    column=name,
                ) from None
        table = pa.Table.from_arrays(columns, schema=schema) if schema else pa.table(columns, names=names)
        return cls(TableSource(table))

    @classmethod
    def from_spark(cls, frame: Any, order_by: Sequence[str] | str | None = None) -> Self:
        """View a Spark frame: sorted by columns, else frozen as its rows first come (decision 3)."""
        from trueline.view.engine import engine

        names = [order_by] if isinstance(order_by, str) else order_by
        return cls(engine().freeze(frame, names))

    # --- what it is -------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The columns; known without reading."""
        return self._schema

    @property
    def row_count(self) -> int | None:
        """How many rows there are if that is known without reading, else None; `count()` finds out."""
        return self._step.row_count

    @property
    def origins(self) -> Mapping[str, Origin]:
        """Exactly which records it rests on: by dataset, the commit and the last offset."""
        return self._step.origins

    @property
    def removed(self) -> int:
        """How many of the records it rests on were removed on purpose; reading passes over them."""
        return sum(origin.removed for origin in self.origins.values())

    def explain(self) -> str:
        """Say what reading it does."""
        return "\n".join(self._step.explain())

    def __repr__(self) -> str:
        known = self.row_count
        rows = "" if known is None else f"{known:,} rows, "
        return f"<View {rows}{', '.join(f'{c.name}: {c.type}' for c in self._schema)}>"

    def _repr_html_(self) -> str:
        from trueline.view.showing import html

        return html(self)

    def _with(self, step: Step) -> View:
        return View(step, self._spark)

    # --- other views --------------------------------------------------------------------

    def select(self, *names: str) -> View:
        """Keep these columns, in this order."""
        self._check(names)
        return self._with(Project(self._step, {name: name for name in names}))

    def drop(self, *names: str) -> View:
        """Leave out these columns."""
        self._check(names)
        return self._with(
            Project(self._step, {name: name for name in self._schema.names if name not in names})
        )

    def rename(self, mapping: Mapping[str, str] | None = None, /, **names: str) -> View:
        """Give columns other names: `rename(new="old")`, or `rename({"old": "new"})`.

        >>> View.from_rows([{"x": 1}]).rename(y="x").schema.names
        ('y',)
        """
        new_of = dict(mapping or {}) | {old: new for new, old in names.items()}
        self._check(tuple(new_of))
        found = [new_of.get(name, name) for name in self._schema.names]
        if len(set(found)) != len(found):
            twice = next(name for name in found if found.count(name) > 1)
            raise SchemaError(f"two columns would be {twice!r}", remedy="rename the other too", column=twice)
        return self._with(Project(self._step, dict(zip(found, self._schema.names, strict=True))))

    def filter(self, where: str, /, **parameters: object) -> View:
        """Keep the rows for which a condition is true; `:name` in it stands for a parameter.

        `docs/reading.md` describes the language. A row for which there is no
        answer (a missing value, a division by zero) is not kept.
        """
        return self._with(Filter(self._step, condition(where, self._step.schema, parameters)))

    def limit(self, count: int) -> View:
        """Keep the first rows."""
        return self._with(Part(self._step, 0, _natural(count, "limit")))

    def skip(self, count: int) -> View:
        """Leave out the first rows."""
        return self._with(Part(self._step, _natural(count, "skip"), None))

    def sort(self, *names: str, descending: bool = False) -> View:
        """Order the rows by columns: missing last, NaN before it, equal rows as they were."""
        self._check(names)
        if not names:
            raise InputError("sort by what?", remedy="name at least one column")
        for name in names:
            kind = self._schema[name].type
            if pa.types.is_nested(kind):
                raise SchemaError(
                    f"column {name!r} is of type {kind}, which has no order",
                    remedy="sort by other columns",
                    column=name,
                )
        return self._with(Sort(self._step, names, descending))

    # --- reading --------------------------------------------------------------------------

    def batches(self, columns: Sequence[str] | str | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, some at a time; only these columns are read (None: all)."""
        names = self._schema.names if columns is None else [columns] if isinstance(columns, str) else columns
        self._check(names)
        return self._step.batches(list(names), NO_BOUNDS)

    def count(self) -> int:
        """Count the rows, reading no more than that takes."""
        known = self.row_count
        return known if known is not None else sum(batch.num_rows for batch in self.batches(()))

    def rows(self, of: type[T] | None = None) -> Iterator[Any]:
        """Yield the rows as dictionaries, or as what `of` makes of their values by name."""
        for batch in self.batches():
            for row in batch.to_pylist():
                yield row if of is None else of(**row)

    def to_arrow(self) -> pa.Table:
        """Read everything into an Arrow table."""
        return gathered(self._step, list(self._schema.names))

    def to_pandas(self) -> pd.DataFrame:
        """Read everything into a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_spark(self, session: Any = None) -> Any:
        """Return it as a Spark frame; the rows are read by Spark's own tasks where that is possible.

        Without a session it is one of ours: in the Spark of the workspace the view is of, or of this process.
        """
        from trueline.view.engine import engine

        if session is None and self._spark is not None:
            session = self._spark()
        return engine().frame(self, session)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._schema.to_arrow(), self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def show(self, count: int = 20) -> None:
        """Show the first rows."""
        from trueline.view.showing import show

        show(self, _natural(count, "show"))

    # --- inside ---------------------------------------------------------------------------

    @property
    def step(self) -> Step:
        """What it does, for engines that do it elsewhere."""
        return self._step

    def _check(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._schema:
                raise unknown_column(name, self._schema.names)
        if len(set(names)) != len(names):
            twice = next(name for name in names if list(names).count(name) > 1)
            raise SchemaError(
                f"column {twice!r} is named twice", remedy="name each column once", column=twice
            )


def _is_source(given: Source | Step) -> bool:
    return not isinstance(given, Scan | Project | Filter | Part | Sort)


def _natural(count: object, what: str) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InputError(f"{what}({count!r})", remedy="give a whole number from 0 on")
    return count


def _as_dict(row: Any) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in fields(row)}
    raise InputError(f"a row is a {type(row).__name__}", remedy="give dictionaries or dataclasses")
