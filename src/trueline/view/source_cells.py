"""What a source hands over, made to be what its schema says: the one place where cells are looked at.

Behind it every array has exactly its column's type. A cell that is not a value
of the type is null, whichever columns are read (view:C37): a code beyond
a category's count, a vector that is malformed or of the wrong length, text that is not UTF-8,
a date off midnight, a time beyond the day.

Such cells are counted once, however often they are met. Files, and groups of rows in them, are read as a
whole, so each is counted by itself. Other rows come in pieces that a reader's wishes decide; there a pass
over them is counted, and the one that found most is right.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from trueline import console
from trueline import types as t
from trueline.kernel.vectors import is_sparse, mended, with_items
from trueline.readers.cast import may_be_unsound, sound
from trueline.view.converting.numbers import codes
from trueline.view.plan.node import Node, NodeState, steps

Array: TypeAlias = Any  # pyarrow has no types


def entered(column: Array, kind: t.Type) -> Array:
    """Return a column of a source as one array of its logical type.

    >>> entered(pa.chunked_array([[0, 7]], pa.uint32()), t.category(3)).to_pylist()
    [0, None]
    """
    array = one(column)
    if isinstance(kind, t.Vector):
        return _vectors(sound(array).array, kind)
    if array.type != kind.arrow:
        array = castable(array)
        # Text is checked once, behind the cast that takes it out of its dictionary.
        array = (array if pa.types.is_dictionary(array.type) else sound(array).array).cast(kind.arrow)
    if may_be_unsound(kind.arrow):
        array = sound(array).array
    return _coded(array, kind) if isinstance(kind, t.Category) else array


def one(column: Array) -> Array:
    """Return a column as one array."""
    if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1:
        return column.chunk(0)  # `combine_chunks` would copy it
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # what combine_chunks gives for no chunks, and beyond 2 GB
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


def castable(array: Array) -> Array:
    """Return an array that `cast` can read: it cannot read a dictionary of text views, as polars has it.

    >>> coded = pa.DictionaryArray.from_arrays([0, None, 0], pa.array(["Bern"], pa.string_view()))
    >>> castable(coded).cast(pa.string()).to_pylist()
    ['Bern', None, 'Bern']
    """
    if not pa.types.is_dictionary(array.type):
        return array
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(
        array.type.value_type
    )
    if plain is None:
        return array
    return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(plain))


def _vectors(array: Array, kind: t.Vector) -> Array:
    target = kind.sparse if is_sparse(array) else kind.arrow
    array = array if array.type == target else array.cast(target)
    array, _ = mended(array, kind)
    if isinstance(item := kind.item, t.Category):
        items = array.flatten()[2].flatten() if is_sparse(array) else array.flatten()
        if _is_beyond(items, item):
            return with_items(array, kind, item, lambda found: _coded(found, item))
    return array


def _coded(array: Array, kind: t.Category) -> Array:
    return codes(array, kind) if _is_beyond(array, kind) else array


def _is_beyond(array: Array, kind: t.Category) -> bool:
    most = pc.max(array).as_py()
    return most is not None and most >= kind.count


# --- counting them --------------------------------------------------------------------------

FilePart: TypeAlias = int | tuple[int, int]


class BadCell(NamedTuple):
    """How many cells of a column were bad: in a part of a file, or, without one, in a pass over rows."""

    path: str
    part: FilePart | None
    column: str
    number: int


class ReadCounts:
    """What reading has found out about a source: rows of each of its files, and cells that were bad.

    A copy in another process has the same `key`, and what is found there.
    """

    def __init__(self) -> None:
        self.key = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._paths: dict[FilePart, str] = {}
        self._rows: dict[int, int] = {}
        self._bad: dict[tuple[FilePart, str], int] = {}
        self._most: dict[str, int] = {}

    def rows(self, number: int) -> int | None:
        """Return how many rows a file has, if it was read to its end."""
        return self._rows.get(number)

    def note_rows(self, number: int, rows: int) -> None:
        """Keep how many rows a file has."""
        with self._lock:
            self._rows[number] = rows

    def note_bad(self, path: str, part: FilePart, counts: Mapping[str, int]) -> None:
        """Keep how many cells of a file, or a part of one, were bad, and say so the first time."""
        with self._lock:
            new = {name: count for name, count in counts.items() if not self._is_known(part, name)}
            self._bad.update({(part, name): count for name, count in counts.items()})
            self._paths[part] = path
        for name, count in new.items():
            console.current().warn(f"{path}: {count:,} cells of {name!r} cannot be read, and are null")

    def _is_known(self, part: FilePart, name: str) -> bool:
        """Say whether the cells of a part were counted, or those of its whole file."""
        return (part, name) in self._bad or (isinstance(part, tuple) and (part[0], name) in self._bad)

    def note_pass(self, name: str, count: int) -> None:
        """Keep how many cells of a column a pass over the rows has found bad, if none has found more."""
        with self._lock:
            self._most[name] = max(count, self._most.get(name, 0))

    @property
    def cells(self) -> tuple[BadCell, ...]:
        """The bad cells found so far, for another process that counts them."""
        with self._lock:
            found = [
                BadCell(self._paths[part], part, name, count) for (part, name), count in self._bad.items()
            ]
            found += [BadCell("", None, name, count) for name, count in self._most.items()]
        return tuple(found)

    @property
    def bad(self) -> dict[str, int]:
        """The bad cells found so far, by column."""
        found = dict(self._most)
        with self._lock:
            for (part, name), count in self._bad.items():
                if not (isinstance(part, tuple) and (part[0], name) in self._bad):
                    found[name] = found.get(name, 0) + count
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"key": self.key, "_rows": dict(self._rows), "_bad": {}, "_most": {}, "_paths": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        for waiting in getattr(_arriving, "lists", ()):
            waiting.append(self)


_arriving: Final = threading.local()


@contextmanager
def arriving() -> Iterator[list[ReadCounts]]:
    """Note the counts that come to this process inside, with the pieces that are unpickled."""
    found: list[ReadCounts] = []
    _arriving.lists = [*getattr(_arriving, "lists", ()), found]
    try:
        yield found
    finally:
        _arriving.lists = _arriving.lists[:-1]


_tallies: Final = NodeState["ReadCounts"](lambda _: ReadCounts())


def tally_of(node: Node) -> ReadCounts:
    """Return what reading has found out about a source."""
    return _tallies.of(node)


def known_tally(node: Node) -> ReadCounts | None:
    """Return what reading has found out about a source, if it was to be read at all."""
    return _tallies.known(node)


def bad_cells(node: Node) -> dict[str, int]:
    """Return how many cells of the sources of a view are null since they are not values, by column."""
    found: Counter[str] = Counter()
    for each in steps(node):
        known = _tallies.known(each)
        if known is not None:
            found.update(known.bad)
    return dict(found)


class Pass:
    """One pass over the rows of a source, in pieces that each note what they find."""

    def __init__(self, tally: ReadCounts) -> None:
        self._tally = tally
        self._lock = threading.Lock()
        self._found: dict[tuple[int, str], int] = {}

    def note(self, piece: int, counts: Mapping[str, int]) -> None:
        """Keep how many cells a piece has found bad so far."""
        for name, count in counts.items():
            with self._lock:
                self._found[piece, name] = max(count, self._found.get((piece, name), 0))
                total = sum(each for (_, found), each in self._found.items() if found == name)
            self._tally.note_pass(name, total)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pass, (self._tally,)


def as_types(
    columns: Sequence[pa.ChunkedArray | pa.Array],
    kinds: Sequence[t.Type],
    names: Sequence[str],
    bad: Counter[str],
) -> tuple[pa.Array, ...]:
    """Return columns as arrays of their types, and add to `bad` the cells that are null only now."""
    arrays = []
    for column, kind, name in zip(columns, kinds, names, strict=True):
        array = entered(column, kind)
        if array.null_count > column.null_count:
            bad[name] += array.null_count - column.null_count
        arrays.append(array)
    return tuple(arrays)
