"""Where views come from and where they go: Arrow, pandas, polars, Spark, files, Python rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from trueline.errors import InputError, SchemaError
from trueline.view import reading
from trueline.view.plan.node import Node
from trueline.view.sources.memory import Memory

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from trueline.view.cursor.row import Key
    from trueline.view.schema import Schema

T = TypeVar("T")


class Doors:
    """The doors of a view; `View` is what people use."""

    __slots__ = ()

    if TYPE_CHECKING:
        _spark: Callable[[], Any] | None

        def __init__(self, given: Any) -> None: ...

        @property
        def node(self) -> Node: ...

        @property
        def schema(self) -> Schema: ...

    # --- in ---------------------------------------------------------------------------

    @classmethod
    def from_arrow(cls, data: Any) -> Self:
        """View an Arrow table or batch, or anything with `__arrow_c_stream__` (polars, DuckDB …).

        >>> from trueline import View
        >>> View.from_arrow(pa.table({"x": [1, 2]})).count()
        2
        """
        if isinstance(data, pa.RecordBatch):
            return cls(Memory(pa.Table.from_batches([data])))
        if isinstance(data, pa.Table):
            return cls(Memory(data))
        if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            return cls(Memory(pa.table(data)))
        raise InputError(
            f"a {type(data).__name__} is not an Arrow table",
            remedy="give a table, a batch, or anything with __arrow_c_stream__; from_rows takes dictionaries",
        )

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> Self:
        """View a pandas frame; its index is left out, NaN in it is missing."""
        try:
            return cls(Memory(pa.Table.from_pandas(frame, preserve_index=False)))
        except pa.ArrowException as error:
            raise SchemaError(
                f"the frame cannot be held by Arrow: {error}", remedy="cast the column"
            ) from None

    @classmethod
    def from_polars(cls, frame: Any) -> Self:
        """View a polars frame."""
        return cls.from_arrow(frame)

    @classmethod
    def from_rows(cls, rows: Iterable[Any], schema: pa.Schema | type | None = None) -> Self:
        """View dictionaries or dataclasses; a name that a row lacks is missing there.

        >>> from trueline import View
        >>> View.from_rows([{"x": 1}, {"y": "a"}]).to_arrow().to_pydict()
        {'x': [1, None], 'y': [None, 'a']}
        """
        from trueline.view.sources.python import from_rows

        return cls(from_rows(rows, schema))

    @classmethod
    def from_spark(cls, frame: Any, order_by: Sequence[str] | str | None = None) -> Self:
        """View a Spark frame: sorted by columns, else frozen as its rows first come (decision 3)."""
        from trueline.view.engine import engine

        names = [order_by] if isinstance(order_by, str) else order_by
        return cls(engine().freeze(frame, names))

    @classmethod
    def range(cls, count: int, start: int = 0, name: str = "n") -> Self:
        """View the whole numbers from `start` on, made as they are read.

        >>> from trueline import View
        >>> View.range(3, start=5).to_arrow().to_pydict()
        {'n': [5, 6, 7]}
        """
        from trueline.view.sources.numbers import Numbers

        return cls(Numbers(count, start, name))

    @classmethod
    def read_csv(cls, paths: Any, **options: Any) -> Self:
        """View CSV files in the order given, globs sorted; the options are those of `tl.csv`."""
        from trueline.view.sources.files import csv_files

        return cls(csv_files(paths, **options))

    @classmethod
    def read_text(cls, paths: Any, **options: Any) -> Self:
        """View the lines of text files; the options are those of `tl.text`."""
        from trueline.view.sources.files import text_files

        return cls(text_files(paths, **options))

    @classmethod
    def read_json(cls, paths: Any, **options: Any) -> Self:
        """View files of JSON lines; the options are those of `tl.json`."""
        from trueline.view.sources.files import json_files

        return cls(json_files(paths, **options))

    @classmethod
    def read_parquet(cls, paths: Any, **options: Any) -> Self:
        """View Parquet files in the order given, globs sorted; groups of rows are read one by one."""
        from trueline.view.sources.parquet import parquet_files

        return cls(parquet_files(paths, **options))

    # --- out --------------------------------------------------------------------------

    def batches(self, columns: Sequence[Key] | Key | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, some at a time; only these columns are read (None: all)."""
        return reading.batches(self.node, self.schema.find_all(columns))

    def to_arrow(self) -> pa.Table:
        """Read everything into an Arrow table."""
        return reading.table(self.node, self.schema.visible)

    def to_pandas(self) -> pd.DataFrame:
        """Read everything into a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Read everything into a polars frame."""
        import polars as pl  # type: ignore[import-not-found, unused-ignore]

        return pl.from_arrow(self.to_arrow())

    def to_spark(self, session: Any = None) -> Any:
        """Return it as a Spark frame; the rows are read by Spark's own tasks where that is possible.

        Without a session it is one of ours: in the Spark of the workspace the view is of, or of this process.
        """
        from trueline.view.engine import engine

        if session is None and self._spark is not None:
            session = self._spark()
        return engine().frame(self, session)  # type: ignore[arg-type]

    def rows(self, of: type[T] | None = None) -> Iterator[Any]:
        """Yield the rows as dictionaries, or as objects of a class that is checked first (view:C119)."""
        from trueline.view.sources.python import rows

        return rows(self.node, of)

    def write_csv(self, path: Any, **options: Any) -> Any:
        """Write the rows as CSV; `docs/views.md` lists what does not come back."""
        from trueline.view.export import write_csv

        return write_csv(self.node, path, **options)

    def write_parquet(self, path: Any, **options: Any) -> Any:
        """Write the rows as Parquet, types and annotations included."""
        from trueline.view.export import write_parquet

        return write_parquet(self.node, path, **options)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.schema.to_arrow(), self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()
