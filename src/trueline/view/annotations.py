"""What is known about a column beside its type: names of slots, values of categories, and more.

Whoever makes a column may annotate it; whoever reads one must get along
without: an annotation that is absent, of the wrong type or of the wrong size
counts as absent (view:C20). `slot_names`, `category_values` and their like
ask in that way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from trueline import types as t
from trueline.errors import InputError

if TYPE_CHECKING:
    from trueline.identity import RowId
    from trueline.view.row import Asked, Getter, Key
    from trueline.view.schema import Schema

SLOT_NAMES: Final = "slot_names"
CATEGORY_VALUES: Final = "category_values"
CATEGORICAL_RANGES: Final = "categorical_ranges"
IS_NORMALISED: Final = "is_normalised"
IS_USER_VISIBLE: Final = "is_user_visible"
SCORE_KIND: Final = "score_kind"
SCORE_VALUE_KIND: Final = "score_value_kind"
SCORE_SET: Final = "score_set"
TRAINING_LABELS: Final = "training_labels"


@dataclass(frozen=True, slots=True)
class Annotation:
    """A value and its type."""

    type: t.Type
    value: Any


@dataclass(frozen=True)
class Annotations:
    """A row of its own: its columns are the kinds, each with one value of a declared type (view:C18).

    >>> about = Annotations({IS_NORMALISED: Annotation(t.boolean, True)})
    >>> about[IS_NORMALISED], about.schema.names, about.get("nonsense")
    (True, ('is_normalised',), None)
    """

    found: Mapping[str, Annotation] = field(default_factory=dict)

    @cached_property
    def schema(self) -> Schema:
        """The kinds and their types."""
        from trueline.view.schema import Field, Schema

        return Schema([Field(kind, each.type) for kind, each in self.found.items()])

    # --- a row (view:C18) ---------------------------------------------------------

    @property
    def position(self) -> int:
        """It is one row, and stands there."""
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
        value = self.found[found.name].value
        return lambda: value

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

    def __contains__(self, kind: object) -> bool:
        return kind in self.found

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)


NONE: Final = Annotations()
