"""A view: exactly known rows, read lazily and by column; where it comes from and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

import pyarrow as pa

from trueline.errors import InputError
from trueline.view import explain
from trueline.view.engine import engine
from trueline.view.execute import dispatch, row_count
from trueline.view.execute.dispatch import IN_PROCESS, ON_SPARK, EngineChoice
from trueline.view.hints import ViewHints
from trueline.view.plan.node import Node
from trueline.view.plan.shuffle import shuffled
from trueline.view.plan.sources import Memory, Numbers, SourceScan
from trueline.view.source_cells import bad_cells
from trueline.view.verbs import Verbs, natural

if TYPE_CHECKING:
    import os

    import pandas as pd  # type: ignore[import-untyped]

    from trueline.view.cursor.cursor import ChunkCursor
    from trueline.view.cursor.row import Key
    from trueline.view.display import Preview
    from trueline.view.export import Exported
    from trueline.view.origin import ColumnOrigin, Origin
    from trueline.view.schema import Schema
    from trueline.view.source import RowSource

T = TypeVar("T")


class View(Verbs, ViewHints):
    """Rows with names, types and ids that are read when they are asked for, the same each time.

    A view is a value: every operation returns another one and reads nothing.
    It may be read from several threads at once.

    >>> view = View.from_rows([{"city": "Bern", "price": 9.5}, {"city": "Zug", "price": 30.0}])
    >>> view.filter("price > :limit", limit=10).select("city").to_arrow().to_pydict()
    {'city': ['Zug']}

    >>> view.columns, view.row_count, view.can_shuffle, view.origins, view.removed, dict(view.bad)
    (('city', 'price'), 2, True, {}, 0, {})
    >>> view.schema["price"].type, view.origin("price").column, view.node.schema.names, view.read_at
    (float64, 'price', ('city', 'price'), '')
    """

    __slots__ = ("_choice", "_node", "_spark")

    def __init__(
        self,
        given: Node | RowSource,
        spark: Callable[[], Any] | None = None,
        choice: EngineChoice = IN_PROCESS,
    ) -> None:
        self._node: Node = given if isinstance(given, Node) else SourceScan(given)
        self._spark = spark
        self._choice = choice

    def _made_of(self, node: Node) -> Self:
        """Return a view of another node, in the same Spark, computed where this one is."""
        return type(self)(node, self._spark, self._choice)

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "a view cannot be serialised (view:C101)",
            remedy="write its rows: write_parquet(path), or append it to a dataset",
            code="NotSerialisable",
        )

    # --- from ---------------------------------------------------------------------------

    @classmethod
    def from_arrow(cls, data: Any) -> Self:
        """View an Arrow table or batch, or anything with `__arrow_c_stream__` (polars, DuckDB …).

        The rows are copied: what happens to the memory later, for example by numpy, does not show.

        >>> from trueline import View
        >>> View.from_arrow(pa.table({"x": [1, 2]})).count()
        2
        """
        from trueline.view.sources.memory import copied_table

        return cls(Memory(copied_table(data)))

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> Self:
        """View a copy of a pandas frame; its index is left out, NaN in it is null.

        >>> import pandas as pd
        >>> View.from_pandas(pd.DataFrame({"x": [1.5, None]})).to_arrow().to_pydict()
        {'x': [1.5, None]}
        """
        from trueline.view.pandas_frames import table_of

        return cls(Memory(table_of(frame)))

    @classmethod
    def from_polars(cls, frame: Any) -> Self:
        """View a polars frame.

        >>> import polars as pl
        >>> View.from_polars(pl.DataFrame({"x": [1, 2]})).count()
        2
        """
        return cls.from_arrow(frame)

    @classmethod
    def from_rows(cls, rows: Iterable[Any], schema: pa.Schema | type | None = None) -> Self:
        """View dictionaries or dataclasses; a name that a row lacks is null there.

        >>> from trueline import View
        >>> View.from_rows([{"x": 1}, {"y": "a"}]).to_arrow().to_pydict()
        {'x': [1, None], 'y': [None, 'a']}
        """
        from trueline.view.sources.python import from_rows

        return cls(from_rows(rows, schema))

    @classmethod
    def from_spark(cls, frame: Any, order_by: Sequence[str] | str | None = None) -> Self:
        """View a Spark frame: sorted by columns, else frozen in the order its rows come in (decision 3)."""
        names = [order_by] if isinstance(order_by, str) else order_by
        return cls(engine().freeze(frame, names), choice=EngineChoice("auto", lambda: frame.sparkSession))

    @classmethod
    def range(cls, count: int, start: int = 0, name: str = "n") -> Self:
        """View the whole numbers from `start` on, made as they are read.

        >>> from trueline import View
        >>> View.range(3, start=5).to_arrow().to_pydict()
        {'n': [5, 6, 7]}
        """
        return cls(Numbers(count, start, name))

    @classmethod
    def read_csv(cls, paths: Any, **options: Any) -> Self:
        r"""View CSV files in the order given, globs sorted; the options are those of `tl.csv`.

        >>> view = View.read_csv(b"city,price\nBern,9.5\n")
        >>> view.schema
        Schema(city: text, price: float64)
        """
        from trueline.view.sources.files import csv_files

        return cls(csv_files(paths, **options))

    @classmethod
    def read_text(cls, paths: Any, **options: Any) -> Self:
        r"""View the lines of text files; the options are those of `tl.text`.

        >>> View.read_text(b"first\nsecond\n").count()
        2
        """
        from trueline.view.sources.files import text_files

        return cls(text_files(paths, **options))

    @classmethod
    def read_json(cls, paths: Any, **options: Any) -> Self:
        r"""View files of JSON: lines, arrays, objects; the options are those of `tl.json`.

        >>> View.read_json(b'{"x": 1}\n{"x": 2}\n').to_arrow().to_pydict()
        {'x': [1, 2]}
        """
        from trueline.view.sources.files import json_files

        return cls(json_files(paths, **options))

    @classmethod
    def read_arrow(cls, paths: Any, **options: Any) -> Self:
        """View Arrow IPC files and streams, and Feather; the options are those of `tl.arrow`.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = View.range(3).write_arrow(f"{folder}/numbers.arrow")
        ...     View.read_arrow(f"{folder}/*.arrow").to_arrow().to_pydict()
        {'n': [0, 1, 2]}
        """
        from trueline.view.sources.files import arrow_files

        return cls(arrow_files(paths, **options))

    @classmethod
    def read_parquet(cls, paths: Any, **options: Any) -> Self:
        """View Parquet files in the order given, globs sorted; groups of rows are read one by one.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = View.range(3).write_parquet(f"{folder}/numbers.parquet")
        ...     View.read_parquet(f"{folder}/*.parquet").count()
        3
        """
        from trueline.view.sources.parquet import parquet_files

        return cls(parquet_files(paths, **options))

    # --- what it is -------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The columns; known without reading, the same object each time (view:C1)."""
        return self._node.schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self.schema.names

    @property
    def row_count(self) -> int | None:
        """How many rows there are if that is known without reading, else None; `count()` finds out."""
        return row_count(self._node)

    @property
    def can_shuffle(self) -> bool:
        """Whether a seed given to a cursor changes the order (view:C81)."""
        return self._node.can_shuffle

    @property
    def origins(self) -> Mapping[str, Origin]:
        """Exactly which records it rests on: by dataset, the commit and the last offset."""
        return self._node.origins

    @property
    def read_at(self) -> str:
        """The cut at which a query reads several datasets, as `trueline sql --cut` takes it; else no text."""
        return explain.read_at(self._node)

    @property
    def removed(self) -> int:
        """How many of the records it rests on were removed on purpose; reading passes over them."""
        return sum(origin.removed for origin in self.origins.values())

    @property
    def bad(self) -> Mapping[str, int]:
        """How many cells could not be read and are null, by column, as far as the sources were read."""
        return bad_cells(self._node)

    def origin(self, column: Key) -> ColumnOrigin | None:
        """Say which column of which source a column *is*; None if it is computed."""
        return explain.origin(self._node, self.schema.find(column))

    def explain(self, columns: Sequence[Key] | Key | None = None) -> str:
        """Say what reading these columns does: steps, active columns, what is passed on, what is serial.

        >>> print(View.range(9).filter("n > 3").explain())
        rows where n > 3 (skips what n rules out)
            reads =n
          numbers from 0 on: 9 rows
              reads n
        """
        return explain.explain(self._node, self.schema.find_all(columns), self._choice)

    def count(self) -> int:
        """Count the rows, reading no more than that takes.

        >>> View.range(9).filter("n > 3").count()
        5
        """
        return dispatch.count(self._plan)

    # --- row by row -------------------------------------------------------------------

    def cursor(self, columns: Sequence[Key] | Key | None = None, seed: int | None = None) -> ChunkCursor:
        """Open a cursor over the rows in order, or shuffled by a seed if the view can be (view:C83).

        >>> with View.from_rows([{"x": 1}, {"x": 2}]).cursor("x") as c:
        ...     get = c.getter("x", int)
        ...     while c.move_next():
        ...         print(c.position, c.id.hex[-4:], get())
        0 0000 1
        1 0001 2
        """
        from trueline.view.cursor import cursor

        return cursor.cursor(self._ordered(seed), self.schema.find_all(columns))

    def cursor_set(
        self, columns: Sequence[Key] | Key | None = None, n: int = 0, seed: int | None = None
    ) -> list[ChunkCursor]:
        """Open cursors that share the rows, to be read by as many threads; n is a hint (view:C60).

        Sorted by `batch`, their rows are those of one cursor (view:C64); `consolidate` does that.

        >>> cursors = View.range(9).cursor_set("n", n=2)
        >>> for cursor in cursors:
        ...     cursor.close()
        """
        from trueline.view.cursor import cursor

        return cursor.cursor_set(self._ordered(seed), self.schema.find_all(columns), n)

    def _ordered(self, seed: int | None) -> Node:
        if seed is None or not self.can_shuffle:
            return self._plan
        return self._choice.plan(shuffled(self._node, seed), self._spark)

    # --- looking at it ----------------------------------------------------------------

    def show(self, count: int = 20) -> None:
        """Show the first rows.

        >>> from trueline import console
        >>> with console.use(console.CapturedConsole()) as seen:
        ...     View.range(9).show(2)
        >>> print(seen.text)
        first 2 of 9 rows, 1 column
        n
        0
        1
        """
        from trueline.view.display import show

        show(self._plan, natural(count, "show"))

    def preview(self, count: int = 5, *, steps: bool = False) -> Preview:
        """Return the first rows to look at; with `steps`, those of every step on the way.

        >>> View.range(9).preview(2)
        numbers from 0 on: 9 rows
        n
        0
        1
        """
        from trueline.view.display import preview

        return preview(self._node if steps else self._plan, natural(count, "preview"), steps=steps)

    def __repr__(self) -> str:
        known = explain.likely_rows(self._node)
        rows = "" if known is None else f"{known:,} rows, "
        return f"<View {rows}{', '.join(f'{c.name}: {c.type}' for c in self.schema.visible)}>"

    def _repr_html_(self) -> str:
        from trueline.view.display import html

        return html(self._plan)

    # --- to ----------------------------------------------------------------------------

    def batches(self, columns: Sequence[Key] | Key | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, some at a time; only these columns are read (None: all).

        >>> [batch.num_rows for batch in View.range(9).batches("n")]
        [9]
        """
        return dispatch.batches(self._plan, self.schema.find_all(columns))

    def to_arrow(self) -> pa.Table:
        """Read everything into an Arrow table.

        >>> View.range(2).to_arrow().to_pydict()
        {'n': [0, 1]}
        """
        return dispatch.table(self._plan, self.schema.visible)

    def to_pandas(self, *, nullable: bool = True) -> pd.DataFrame:
        """Read everything into a pandas frame.

        Whole numbers that may be null have pandas' types for that (`Int64`), so that they stay whole numbers;
        with `nullable=False` they are as Arrow makes them, floats where there are nulls.

        >>> View.range(3).to_pandas()["n"].sum()
        np.int64(3)
        >>> View.from_rows([{"x": 1}, {"x": None}]).to_pandas()["x"].dtype
        Int64Dtype()
        """
        from trueline.view.pandas_frames import frame_of

        return frame_of(self.to_arrow(), self.schema, nullable=nullable)

    def to_polars(self) -> Any:
        """Read everything into a polars frame.

        >>> View.range(3).to_polars().shape
        (3, 1)
        """
        import polars as pl  # type: ignore[import-not-found, unused-ignore]

        return pl.from_arrow(self.to_arrow())

    def to_spark(self, session: Any = None) -> Any:
        """Return it as a Spark frame; the rows are read by Spark's own tasks where that is possible.

        Without a session it is one of ours: in the Spark of the workspace the view is of, or of this process.
        """
        if session is None and self._spark is not None:
            session = self._spark()
        return engine().frame(self._node, session)

    def on_spark(self, session: Any = None) -> Self:
        """Return the same rows in the same order, computed on Spark, as is all that is made of them.

        In this session, else in the Spark of the workspace the view is of, or of this process. `explain()`
        says what each step does there; where views are joined, the left one decides.

        >>> View.range(9).on_spark().sort("n").explain().splitlines()[0]
        'computed on Spark: asked for'
        """
        found = self._spark if session is None else engine().given(session)
        return type(self)(self._node, found, ON_SPARK)

    @overload
    def rows(self, of: None = None) -> Iterator[dict[str, object]]: ...

    @overload
    def rows(self, of: type[T]) -> Iterator[T]: ...

    def rows(self, of: type[T] | None = None) -> Iterator[T] | Iterator[dict[str, object]]:
        """Yield the rows as dictionaries, or as objects of a class that is checked first (view:C119).

        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Number:
        ...     n: int
        >>> list(View.range(2).rows(Number))
        [Number(n=0), Number(n=1)]
        """
        from trueline.view.sources.python import rows

        return rows(self._plan, of)

    def __iter__(self) -> Iterator[dict[str, object]]:
        return self.rows()

    def write_csv(self, path: str | os.PathLike[str], **options: Any) -> Exported:
        """Write the rows as CSV; `docs/views.md` lists what does not come back.

        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = View.range(2).write_csv(f"{folder}/numbers.csv")
        ...     pathlib.Path(f"{folder}/numbers.csv").read_text().split()
        ['"n"', '0', '1']
        """
        from trueline.view.export import write_csv

        return write_csv(self._plan, path, **options)

    def write_parquet(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
        """Write the rows as Parquet, types and annotations included.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     View.range(2).write_parquet(f"{folder}/numbers.parquet").rows
        2
        """
        from trueline.view.export import write_parquet

        return write_parquet(self._plan, path, overwrite=overwrite)

    def write_json(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
        """Write the rows as JSON lines: an object a line, times as text, bytes as hex, NaN as null.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     View.range(2).write_json(f"{folder}/numbers.jsonl").rows
        2
        """
        from trueline.view.export import write_json

        return write_json(self._plan, path, overwrite=overwrite)

    def write_arrow(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
        """Write the rows as a file of Arrow IPC, types and annotations included.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     View.range(2).write_arrow(f"{folder}/numbers.arrow").rows
        2
        """
        from trueline.view.export import write_arrow

        return write_arrow(self._plan, path, overwrite=overwrite)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.schema.to_arrow(), self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    # --- inside -----------------------------------------------------------------------

    @property
    def _plan(self) -> Node:
        """The plan as it is read: on Spark where that was asked for, or is better."""
        return self._choice.plan(self._node, self._spark)

    @property
    def node(self) -> Node:
        """The plan of it, for engines that run it elsewhere."""
        return self._node
