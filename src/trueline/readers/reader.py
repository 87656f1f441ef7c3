"""What all readers are: frozen options, and the verbs `infer`, `read`, `count_rows`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import pyarrow as pa

from trueline.errors import InputError, SchemaError
from trueline.limits import Limits
from trueline.readers.batch import BATCH_ROWS, Reading
from trueline.readers.parts import PART_BYTES, WHOLE, Part
from trueline.readers.source import Source

SAMPLE_ROWS = 10_000
# Rows are sampled until they have so many bytes, or cells: those of the sample are all in memory.
SAMPLE_BYTES = 1 << 24
SAMPLE_CELLS = 1 << 24
NOTHING = pa.schema([])
_LIMITS = {"columns": "max_columns", "record_bytes": "max_record_bytes", "batch_bytes": "max_batch_bytes"}
Sample = TypeVar("Sample")


@dataclass(frozen=True)
class Reader(ABC):
    """How files of one kind are read: plain options, equal and hashable by value."""

    kind: ClassVar[str] = ""
    _kinds: ClassVar[dict[str, type[Reader]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.kind:
            Reader._kinds[cls.kind] = cls

    @property
    def options(self) -> dict[str, object]:
        """All options, as JSON has them."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}

    def to_dict(self) -> dict[str, object]:
        """The reader as plain values, options that are not the default only."""
        usual = {each.name: _plain(each.default) for each in fields(self)}
        return {"kind": self.kind, **{k: v for k, v in self.options.items() if v != usual[k]}}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Reader:
        """Undo `to_dict`."""
        options = dict(values)
        made = Reader._kinds.get(options.pop("kind", ""))
        if made is None:
            raise InputError(
                f"there is no reader of kind {values.get('kind')!r}",
                remedy=f"give one of {', '.join(sorted(Reader._kinds))}",
            )
        known = {each.name for each in fields(made)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise InputError(
                f"the {made.kind} reader has no option {unknown[0]!r}",
                remedy=f"it has {', '.join(sorted(known))}",
            )
        return made(**{name: tuple(v) if isinstance(v, list) else v for name, v in options.items()})

    @property
    def limits(self) -> Limits:
        """What may be in memory at once: what the options say, else the defaults."""
        said = {name: getattr(self, option, None) for name, option in _LIMITS.items()}
        return Limits(**{name: value for name, value in said.items() if value is not None})

    def within(self, limits: Limits) -> Self:
        """Take the limits of a workspace where the options say nothing; they go to tasks with the reader."""
        open_ones = {
            option: getattr(limits, name)
            for name, option in _LIMITS.items()
            if getattr(self, option, 0) is None
        }
        return replace(self, **open_ones)

    @abstractmethod
    def infer(
        self, sources: Sequence[Source], *, rows: int = SAMPLE_ROWS, known: pa.Schema = NOTHING
    ) -> pa.Schema:
        """The schema the first rows of the files suggest; types that are known are not guessed."""

    @abstractmethod
    def read(
        self,
        source: Source,
        schema: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
        part: Part = WHOLE,
    ) -> Reading:
        """Read one file as the schema says; with `columns` only these, in the order asked for.

        A part is read as if it were a file: its rows, and the lines of bad cells, are counted from its start.
        """

    def parts(self, source: Source, *, size: int = PART_BYTES) -> list[Part]:
        """Cut a large file into parts that can be read side by side; one part where it cannot be cut.

        They are the file only if all of them can be read without an error; see `trueline.readers.parts`.
        """
        return [WHOLE]

    def count_rows(self, source: Source) -> int | None:
        """How many rows a file has, where that is known without reading it."""
        return None

    @abstractmethod
    def to_read_step(self) -> dict[str, object]:
        """The reader as an Open Data Fabric `ReadStep`; it has fields for some of the options only."""

    @classmethod
    def from_read_step(cls, step: Mapping[str, Any]) -> Self:
        """The reader that a dataset of another Open Data Fabric implementation declares."""
        raise InputError(
            f"sources of kind {step.get('kind')} are not supported", remedy="use Csv, NdJson or Parquet"
        )


def chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Narrow a schema to the columns asked for, in that order.

    >>> chosen(pa.schema({"a": pa.int8(), "b": pa.int8()}), ["b"]).names
    ['b']
    """
    if columns is None:
        return schema
    if isinstance(columns, str):
        raise InputError(f"columns is a string, {columns!r}, not a list", remedy="give a list of names")
    for name in columns:
        if schema.get_field_index(name) < 0:
            raise SchemaError(
                f"there is no column {name!r}", remedy=f"give one of {', '.join(schema.names)}", column=name
            )
    if len(set(columns)) < len(columns):
        raise SchemaError("columns names a column twice", remedy="name each column once")
    return pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)


def guessed(
    samples: Mapping[str, Sample], known: pa.Schema, guess: Callable[[Sample], pa.DataType]
) -> pa.Schema:
    """Give every column the type it is known to have, else the one its sample suggests."""
    names = set(known.names)
    return pa.schema(
        [(name, known.field(name).type if name in names else guess(cells)) for name, cells in samples.items()]
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
