"""What is known about a column beside its type: names of slots, values of categories, and more.

The maker of a column may annotate it; a reader must get along
without: an annotation that is absent, of the wrong type or of the wrong size
counts as absent (view:C20). `slot_names`, `category_values` and their like
ask in that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline import types as t
from trueline.errors import InputError

if TYPE_CHECKING:
    from trueline.identity import RowId
    from trueline.view.cursor.row import Asked, Getter, Key
    from trueline.view.schema import Column, Schema

SLOT_NAMES: Final = "slot_names"
CATEGORY_VALUES: Final = "category_values"
CATEGORICAL_RANGES: Final = "categorical_ranges"
IS_NORMALISED: Final = "is_normalised"
IS_USER_VISIBLE: Final = "is_user_visible"
SCORE_KIND: Final = "score_kind"
SCORE_VALUE_KIND: Final = "score_value_kind"
SCORE_SET: Final = "score_set"
TRAINING_LABELS: Final = "training_labels"


@dataclass(frozen=True, slots=True, eq=False)
class Annotation:
    """A value and its type; the values of a vector are a tuple, which nobody can change (view:C24)."""

    type: t.Type
    value: Any

    def __post_init__(self) -> None:
        value = self.value
        if hasattr(value, "tolist"):  # of numpy and Arrow
            value = value.tolist()
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | tuple):
            value = tuple(value)
        object.__setattr__(self, "value", value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Annotation) and self.type == other.type and _alike(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.type)


def _alike(one: Any, other: Any) -> bool:
    """Equal, where NaN is equal to NaN: what is read twice is the same twice."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 (NaN)


@dataclass(frozen=True, eq=False)
class Annotations:
    """A row of its own: its columns are the kinds, each with one value of a declared type (view:C18).

    >>> about = Annotations({IS_NORMALISED: Annotation(t.boolean, True)})
    >>> about[IS_NORMALISED], about.schema.names, about.get("nonsense")
    (True, ('is_normalised',), None)
    """

    found: Mapping[str, Annotation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds: Iterable[object] = self.found
        wrong = [kind for kind in kinds if not isinstance(kind, str) or kind in ("", "type")]
        if wrong:
            raise InputError(
                f"an annotation is named {wrong[0]!r}",
                remedy="give it a name; `type` is what a stored field says of its type",
            )
        # A dictionary of its own, so that whoever gave it cannot change it later.
        object.__setattr__(self, "found", dict(self.found))

    def __hash__(self) -> int:
        return hash(tuple(self.found))

    @cached_property
    def schema(self) -> Schema:
        """The kinds and their types."""
        from trueline.view.schema import Field, Schema

        return Schema([Field(kind, each.type) for kind, each in self.found.items()])

    # --- a row (view:C18) ---------------------------------------------------------

    @property
    def position(self) -> int:
        """There is one row, the first."""
        return 0

    @property
    def batch(self) -> int:
        """One row, one batch."""
        return 0

    @property
    def id(self) -> RowId:
        """The first row."""
        from trueline.identity import RowId

        return RowId(0)

    def is_active(self, column: Key) -> bool:
        """Every kind there is."""
        self.schema.find(column)
        return True

    def getter(self, column: Key, type: Asked | None = None) -> Getter:  # noqa: A002 (the protocol's name)
        """Return a function that returns the value of a kind."""
        found = self.schema.find(column)
        if type is not None:
            t.same(type, found.type, found.name)
        value = self._value(found.type, self.found[found.name].value)
        return lambda: value

    @staticmethod
    def _value(kind: t.Type, value: Any) -> Any:
        """A vector as rows of views have it, if it is one."""
        if not isinstance(kind, t.Vector) or not isinstance(value, tuple):
            return value
        from trueline.kernel.values import VectorValue

        try:
            return VectorValue.of(kind, value)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return value

    # --- a mapping ----------------------------------------------------------------

    def __getitem__(self, kind: str) -> Any:
        if kind not in self.found:
            raise InputError(
                f"no annotation {kind!r}; there are {', '.join(self.found) or 'none'}",
                remedy="ask with get(), which gives None where there is none",
                code="UnknownAnnotation",
            )
        return self.found[kind].value

    def get(self, kind: str, default: Any = None) -> Any:
        """Return the value of a kind, or something else if there is none."""
        return self.found[kind].value if kind in self.found else default

    def with_(self, **found: Annotation | None) -> Annotations:
        """Return them with some set, or taken away where None."""
        kept = {kind: each for kind, each in {**self.found, **found}.items() if each is not None}
        return Annotations(kept)

    def __eq__(self, other: object) -> bool:
        """Equal to others of the same types and values, and to a mapping of the values."""
        if isinstance(other, Annotations):
            return dict(self.found) == dict(other.found)
        if isinstance(other, Mapping):
            return {kind: each.value for kind, each in self.found.items()} == dict(other)
        return NotImplemented

    def __contains__(self, kind: object) -> bool:
        return kind in self.found

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)


NONE: Final = Annotations()


# --- asking in the forgiving way (view:C20) -------------------------------------------------------


def _present(column: Column, kind: str) -> Annotation | None:
    return column.annotations.found.get(kind)


def _size(kind: t.Type) -> int:
    return kind.size if isinstance(kind, t.Vector) else 0


def _values(found: Annotation | None, size: int) -> tuple[Any, ...] | None:
    """The values of a vector, if there are exactly so many of them, and so the type says."""
    if found is None or not isinstance(found.type, t.Vector) or not isinstance(found.value, tuple):
        return None
    return found.value if size > 0 and found.type.size == size == len(found.value) else None


def _text(found: Annotation | None) -> str | None:
    good = found is not None and found.type == t.text and isinstance(found.value, str)
    return found.value if good and found is not None else None


def _truth(found: Annotation | None) -> bool | None:
    good = found is not None and found.type == t.boolean and isinstance(found.value, bool)
    return found.value if good and found is not None else None


def slot_names(column: Column) -> tuple[str, ...] | None:
    """Return the names of a vector's slots: only as text, one for each slot of a known size (view:C21)."""
    found = _present(column, SLOT_NAMES)
    names = _values(found, _size(column.type))
    if found is None or names is None or not isinstance(found.type, t.Vector) or found.type.item != t.text:
        return None
    if not all(name is None or isinstance(name, str) for name in names):
        return None
    return tuple(name or "" for name in names)


def category_values(column: Column) -> tuple[Any, ...] | None:
    """Return what the codes of a category mean, one value for each code (view:C22)."""
    kind = column.type.item if isinstance(column.type, t.Vector) else column.type
    return _values(_present(column, CATEGORY_VALUES), kind.count) if isinstance(kind, t.Category) else None


def categorical_ranges(column: Column) -> tuple[tuple[int, int], ...] | None:
    """Return the slots that belong to one category each: first and last, both included, in rising order."""
    found = _present(column, CATEGORICAL_RANGES)
    kind = None if found is None else found.type
    if found is None or not isinstance(kind, t.Vector) or kind.item != t.int32 or kind.dims[1:] != (2,):
        return None
    ends = _values(found, kind.size)
    if ends is None or not all(isinstance(end, int) and not isinstance(end, bool) for end in ends):
        return None
    ranges = tuple(zip(ends[::2], ends[1::2], strict=True))
    edges = [-1, *ends, _size(column.type)]
    rising = all(low <= high for low, high in ranges) and all(
        before < after for before, after in zip(edges[0::2], edges[1::2], strict=True)
    )
    return ranges if rising else None


def is_normalised(column: Column) -> bool:
    """Say whether a column is known to be normalised."""
    return _truth(_present(column, IS_NORMALISED)) is True


def is_user_visible(column: Column) -> bool:
    """Say whether people should see a column: what it says of itself, else whether it is hidden."""
    said = _truth(_present(column, IS_USER_VISIBLE))
    return not column.is_hidden if said is None else said


def score_kind(column: Column) -> str | None:
    """Return what kind of scores a column holds, as in "regression"."""
    return _text(_present(column, SCORE_KIND))


def score_value_kind(column: Column) -> str | None:
    """Return what a score column is for: "score", "predicted_label", "probability"."""
    return _text(_present(column, SCORE_VALUE_KIND))


def score_set(column: Column) -> int | None:
    """Return the number of the set of score columns that one belongs to."""
    found = _present(column, SCORE_SET)
    good = found is not None and found.type == t.uint32 and type(found.value) is int and found.value >= 0
    return found.value if good and found is not None else None


def training_labels(column: Column) -> tuple[Any, ...] | None:
    """Return the labels a model was trained with."""
    found = _present(column, TRAINING_LABELS)
    return _values(found, _size(found.type)) if found is not None else None


# --- making them ----------------------------------------------------------------------------------


def about(
    *,
    slot_names: Sequence[str] | None = None,
    category_values: Sequence[Any] | None = None,
    categorical_ranges: Sequence[tuple[int, int]] | None = None,
    training_labels: Sequence[Any] | None = None,
    score_set: int | None = None,
    **single: bool | str | None,
) -> Annotations:
    """Return annotations of the kinds there are, each with the type its readers look for.

    >>> about(slot_names=["a", "b"], is_normalised=True)["slot_names"]
    ('a', 'b')
    """
    found: dict[str, Annotation | None] = {}
    if slot_names is not None:
        found[SLOT_NAMES] = Annotation(t.vector(t.text, len(slot_names)), slot_names)
    if category_values is not None:
        found[CATEGORY_VALUES] = _inferred(category_values)
    if training_labels is not None:
        found[TRAINING_LABELS] = _inferred(training_labels)
    if categorical_ranges is not None:
        flat = [end for ends in categorical_ranges for end in ends]
        found[CATEGORICAL_RANGES] = Annotation(t.vector(t.int32, len(categorical_ranges), 2), flat)
    if score_set is not None:
        found[SCORE_SET] = Annotation(t.uint32, score_set)
    for kind, value in single.items():
        if value is not None:
            found[kind] = Annotation(t.boolean if isinstance(value, bool) else t.text, value)
    return NONE.with_(**found)


def _inferred(values: Sequence[Any]) -> Annotation:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return Annotation(t.vector(t.of(array.type), len(array)), array.to_pylist())
