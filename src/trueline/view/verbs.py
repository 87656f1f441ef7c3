"""What can be done with views: every operation returns another view and reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NoReturn, Self, TypeVar, overload

from trueline.errors import InputError, SchemaError
from trueline.view.expressions import columns_and_parameters
from trueline.view.hints import GROUPS, computed_first, directed, hinted, unknown
from trueline.view.plan.cache import Cache
from trueline.view.plan.concat import concatenated
from trueline.view.plan.decode import decoded
from trueline.view.plan.explode import exploded
from trueline.view.plan.fill_null import filled, fillings
from trueline.view.plan.filter import filtered
from trueline.view.plan.group_by import distinct, grouped
from trueline.view.plan.join import How, joined
from trueline.view.plan.limit import LastRows, Limit
from trueline.view.plan.node import Node
from trueline.view.plan.sample import folds, sampled, split
from trueline.view.plan.select import selected, with_annotations
from trueline.view.plan.shuffle import shuffled
from trueline.view.plan.sort import sorted_by
from trueline.view.plan.window import windowed
from trueline.view.plan.with_columns import RowIdColumn, computed, quoted, with_columns
from trueline.view.plan.zip import zipped
from trueline.view.schema import key_columns

if TYPE_CHECKING:
    from trueline.view.cursor.row import Key
    from trueline.view.schema import Schema

V = TypeVar("V")


class Verbs:
    """The verbs of a view; `View` is what people use."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _made_of(self, node: Node) -> Self: ...

        @property
        def node(self) -> Node: ...

        @property
        def schema(self) -> Schema: ...

    # --- columns ------------------------------------------------------------------------

    @hinted(computed_first)
    def select(self, *columns: Key) -> Self:
        """Keep these columns, in this order; an index or a `Column` reaches a hidden one.

        >>> from trueline import View
        >>> View.from_rows([{"x": 1, "y": 2, "z": 3}]).select("z", "x").columns
        ('z', 'x')
        """
        return self._made_of(selected(self.node, [each.index for each in self.schema.find_all(columns)]))

    def drop(self, *columns: Key) -> Self:
        """Leave out these columns; one that they hid can be seen again.

        >>> from trueline import View
        >>> View.from_rows([{"x": 1, "y": 2}]).drop("y").columns
        ('x',)
        """
        gone = {each.index for each in self.schema.find_all(columns)}
        return self._made_of(selected(self.node, [c.index for c in self.schema if c.index not in gone]))

    def rename(self, mapping: Mapping[str, str] | None = None, /, **names: str) -> Self:
        """Give columns other names: `rename(new="old")`, or `rename({"old": "new"})`.

        >>> from trueline import View
        >>> View.from_rows([{"x": 1}]).rename(y="x").schema.names
        ('y',)
        """
        new_of = dict(mapping or {}) | {old: new for new, old in names.items()}
        places = {self.schema[old].index: new for old, new in new_of.items()}
        seen = [places.get(c.index, c.name) for c in self.schema.visible]
        if len(set(seen)) != len(seen):
            twice = next(name for name in seen if seen.count(name) > 1)
            raise SchemaError(
                f"two columns would be named {twice!r}", remedy="rename the other too", column=twice
            )
        line = [c.index for c in self.schema]
        return self._made_of(selected(self.node, line, [places.get(c.index, c.name) for c in self.schema]))

    def with_columns(self, mapping: Mapping[str, str] | None = None, /, **columns: object) -> Self:
        """Add computed columns: `with_columns(y="x + :a", a=1)`; one of a known name hides the old one.

        A keyword that a text names as `:keyword` is a parameter; the others are new columns.

        >>> from trueline import View
        >>> View.from_rows([{"x": 1}]).with_columns(y="x + :a", a=2).to_arrow().to_pydict()
        {'x': [1], 'y': [3]}
        """
        texts, parameters = columns_and_parameters(mapping or {}, columns)
        return self._made_of(with_columns(self.node, texts, parameters))

    def annotate(self, column: Key, kinds: Mapping[str, object] | None = None, /, **more: object) -> Self:
        """Say what is known of a column: `annotate("price", {"shop/unit": "CHF"})`; None takes a kind away.

        Values of `slot_names`, `category_values` and the other kinds in `docs/types.md` must fit the column.

        >>> from trueline import View
        >>> view = View.from_rows([{"price": 9.5}]).annotate("price", {"shop/unit": "CHF"}, score_kind="cost")
        >>> view.rename(cost="price").schema["cost"].annotations == {"shop/unit": "CHF", "score_kind": "cost"}
        True
        """
        found = self.schema.find(column)
        return self._made_of(with_annotations(self.node, found, {**(kinds or {}), **more}))

    def with_row_id(self, name: str) -> Self:
        """Add the row id as a column (view:C80).

        >>> from trueline import View
        >>> View.from_rows([{"x": 1}]).with_row_id("id").columns
        ('x', 'id')
        """
        return self._made_of(computed(self.node, [RowIdColumn(name)]))

    def decode(self, *columns: str) -> Self:
        """Put the values of categories in place of their codes; to compare categories of other values.

        >>> import pyarrow as pa
        >>> from trueline import View, types
        >>> from trueline.view.annotations import about
        >>> from trueline.view.schema import Field, Schema
        >>> schema = Schema([Field("answer", types.category(2), about(category_values=["no", "yes"]))])
        >>> view = View.from_arrow(pa.table([pa.array([1, 0], pa.uint32())], schema.to_arrow()))
        >>> view.decode("answer").to_arrow().to_pydict()
        {'answer': ['yes', 'no']}
        """
        return self._made_of(decoded(self.node, self.schema.find_all(columns)))

    def fill_null(self, value: object = None, /, *columns: str, **values: object) -> Self:
        """Put a value where there is null; types stay, and NaN is not null.

        A value alone goes into every column that holds values of its kind; with names, into those;
        by keyword (or in a mapping), each column has its own.

        >>> from trueline import View
        >>> view = View.from_rows([{"city": None, "price": 9}, {"city": "Zug", "price": None}])
        >>> view.fill_null(0).to_arrow().to_pydict()
        {'city': [None, 'Zug'], 'price': [9, 0]}
        >>> view.fill_null(city="?", price=1).to_arrow().to_pydict()
        {'city': ['?', 'Zug'], 'price': [9, 1]}
        """
        return self._made_of(filled(self.node, fillings(self.schema, value, columns, values)))

    # --- rows ---------------------------------------------------------------------------

    def filter(self, where: str, /, **parameters: object) -> Self:
        """Keep the rows for which a condition is true; `:name` in it is a parameter.

        `docs/expressions.md` describes the language. A row for which the
        condition is null (a null value, a division by zero) is not kept.

        >>> from trueline import View
        >>> View.range(5).filter("n >= :least and n <> 3", least=2).to_arrow().to_pydict()
        {'n': [2, 4]}
        """
        return self._made_of(filtered(self.node, where, parameters))

    def limit(self, count: int) -> Self:
        """Keep the first rows.

        >>> from trueline import View
        >>> View.range(9).limit(2).to_arrow().to_pydict()
        {'n': [0, 1]}
        """
        return self._made_of(Limit(self.node, 0, natural(count, "limit")))

    def head(self, count: int = 5) -> Self:
        """Keep the first rows, as `limit` does.

        >>> from trueline import View
        >>> View.range(9).head(2).to_arrow().to_pydict()
        {'n': [0, 1]}
        """
        return self._made_of(Limit(self.node, 0, natural(count, "head")))

    def tail(self, count: int = 5) -> Self:
        """Keep the last rows.

        >>> from trueline import View
        >>> View.range(9).tail(2).to_arrow().to_pydict()
        {'n': [7, 8]}
        """
        return self._made_of(LastRows(self.node, natural(count, "tail")))

    def drop_nulls(self, *columns: str) -> Self:
        """Keep the rows in which none of these columns is null (none named: no column at all); NaN is kept.

        >>> from trueline import View
        >>> view = View.from_rows([{"x": 1, "y": None}, {"x": None, "y": 2}, {"x": 3, "y": 4}])
        >>> view.drop_nulls("x").count(), view.drop_nulls().count()
        (2, 1)
        """
        asked = [each for each in self.schema.find_all(columns or None) if each.nullable]
        if not asked:
            return self
        where = " and ".join(f"{quoted(each.name)} is not null" for each in asked)
        return self._made_of(filtered(self.node, where, {}))

    def distinct(self, *columns: str) -> Self:
        """Keep the first of all rows that are equal in these columns (none named: in all that can be seen).

        >>> from trueline import View
        >>> view = View.from_rows([{"x": 1, "y": "a"}, {"x": 1, "y": "b"}, {"x": 1, "y": "a"}])
        >>> view.distinct().to_arrow().to_pydict()
        {'x': [1, 1], 'y': ['a', 'b']}
        >>> view.distinct("x").to_arrow().to_pydict()
        {'x': [1], 'y': ['a']}
        """
        return self._made_of(distinct(self.node, columns))

    def skip(self, count: int) -> Self:
        """Leave out the first rows.

        >>> from trueline import View
        >>> View.range(9).skip(7).to_arrow().to_pydict()
        {'n': [7, 8]}
        """
        return self._made_of(Limit(self.node, natural(count, "skip"), None))

    def sample(self, fraction: float, seed: int = 0, *, replace: bool = False) -> Self:
        """Keep each row with a probability, decided by its id: the same rows however it is read.

        With `replace` a row may be drawn several times (Poisson, `fraction` times on average).

        >>> from trueline import View
        >>> some = View.range(1000).sample(0.1, seed=7)
        >>> some.count() == some.count(), 50 < some.count() < 150
        (True, True)
        """
        return self._made_of(sampled(self.node, fraction, seed, replace=replace))

    @overload
    def split(
        self, fractions: Mapping[str, float], seed: int = 0, by: str | Sequence[str] | None = None
    ) -> dict[str, Self]: ...
    @overload
    def split(
        self, fractions: Sequence[float] = ..., seed: int = 0, by: str | Sequence[str] | None = None
    ) -> tuple[Self, ...]: ...
    def split(
        self,
        fractions: Sequence[float] | Mapping[str, float] = (0.8, 0.2),
        seed: int = 0,
        by: str | Sequence[str] | None = None,
    ) -> tuple[Self, ...] | dict[str, Self]:
        """Divide the rows into parts by a hash of the row id, or of columns so that equal keys stay together.

        A row's part does not change when rows are added. A mapping gives parts by name.

        >>> from trueline import View
        >>> parts = View.range(100).split({"train": 0.8, "test": 0.2}, seed=1)
        >>> sum(part.count() for part in parts.values())
        100
        """
        names = list(fractions) if isinstance(fractions, Mapping) else None
        shares = list(fractions.values()) if isinstance(fractions, Mapping) else list(fractions)
        shown = names or [str(number) for number in range(len(shares))]
        parts = [self._made_of(each) for each in split(self.node, shares, seed, by, shown)]
        return tuple(parts) if names is None else dict(zip(names, parts, strict=True))

    def folds(self, k: int, seed: int = 0, by: str | Sequence[str] | None = None) -> list[tuple[Self, Self]]:
        """Return k pairs (training, test): each row is in exactly one test part.

        >>> from trueline import View
        >>> [train.count() + test.count() for train, test in View.range(50).folds(3)]
        [50, 50, 50]
        """
        return [(self._made_of(train), self._made_of(test)) for train, test in folds(self.node, k, seed, by)]

    # --- order --------------------------------------------------------------------------

    @hinted(directed)
    def sort(self, *columns: str, descending: bool | Sequence[bool] = False) -> Self:
        """Order the rows by columns: null last, NaN before it, equal rows as they were.

        >>> from trueline import View
        >>> view = View.from_rows([{"x": 2}, {"x": None}, {"x": 5}])
        >>> view.sort("x", descending=True).to_arrow().to_pydict()
        {'x': [5, 2, None]}
        """
        return self._made_of(sorted_by(self.node, columns, descending))

    def shuffle(self, seed: int) -> Self:
        """Order the rows by a hash of the seed and their ids (decision 4).

        >>> from trueline import View
        >>> sorted(View.range(4).shuffle(seed=3).to_arrow()["n"].to_pylist())
        [0, 1, 2, 3]
        """
        return self._made_of(shuffled(self.node, seed))

    # --- several views ------------------------------------------------------------------

    def concat(self, *others: Self) -> Self:
        """Put the rows of other views after these; a column keeps its place, found by name in the others.

        >>> from trueline import View
        >>> View.range(2).concat(View.range(2, start=10)).to_arrow().to_pydict()
        {'n': [0, 1, 10, 11]}
        """
        return self._made_of(concatenated([self.node, *(each.node for each in others)]))

    def zip(self, *others: Self) -> Self:
        """Put views side by side, row by row, as long as the shortest; ids are those of the first.

        >>> from trueline import View
        >>> View.range(2).zip(View.from_rows([{"x": "a"}, {"x": "b"}])).to_arrow().to_pydict()
        {'n': [0, 1], 'x': ['a', 'b']}
        """
        return self._made_of(zipped([self.node, *(each.node for each in others)]))

    def join(
        self,
        other: Self,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        how: How = "inner",
        as_of: str | tuple[str, str] | None = None,
        *,
        suffix: str = "_right",
    ) -> Self:
        """Bring rows with equal keys together, in the order of the left, then of the right.

        `how` is inner, left, right, full, semi, anti, or cross: every pair of rows, without `on`.
        Null keys have no partner. `as_of` names a column: the partner is the
        last one of the same key whose value there is not after ours.

        >>> from trueline import View
        >>> sales = View.from_rows([{"city": "Bern", "price": 9}, {"city": "Zug", "price": 30}])
        >>> cantons = View.from_rows([{"city": "Bern", "canton": "BE"}])
        >>> sales.join(cantons, on="city", how="left").to_arrow().to_pylist()
        [{'city': 'Bern', 'price': 9, 'canton': 'BE'}, {'city': 'Zug', 'price': 30, 'canton': None}]
        """
        return self._made_of(joined(self.node, other.node, on, how, as_of, suffix))

    # --- one to many, many to one -------------------------------------------------------

    def explode(self, column: str, *, outer: bool = False) -> Self:
        """Give each value of a vector a row of its own; with `outer` an empty one keeps its row.

        >>> from trueline import View
        >>> View.from_rows([{"v": [1, 2]}, {"v": []}]).explode("v").to_arrow().to_pydict()
        {'v': [1, 2]}
        """
        return self._made_of(exploded(self.node, column, outer=outer))

    def group_by(self, *columns: str) -> Groups[Self]:
        """Group rows with equal values: `view.group_by("city").agg(total="sum(price)")`.

        >>> from trueline import View
        >>> view = View.from_rows([{"city": "Bern", "price": 9}, {"city": "Bern", "price": 1}])
        >>> view.group_by("city").agg(total="sum(price)").to_arrow().to_pylist()
        [{'city': 'Bern', 'total': 10}]
        """
        return Groups(self.node, columns, self._made_of)

    def window(
        self, before: int = 0, after: int = 0, /, by: str | Sequence[str] | None = None, **aggregates: object
    ) -> Self:
        """Add columns computed over the rows around each: `before` rows, the row itself, `after` rows.

        >>> from trueline import View
        >>> view = View.from_rows([{"x": 1}, {"x": 2}, {"x": 4}])
        >>> view.window(1, 0, total="sum(x)").to_arrow()["total"].to_pylist()
        [1, 3, 6]
        >>> view.window(number="row_number()", before="lag(x)").to_arrow().to_pydict()
        {'x': [1, 2, 4], 'number': [1, 2, 3], 'before': [None, 1, 2]}
        """
        texts, parameters = columns_and_parameters({}, aggregates)
        reach = natural(before, "before"), natural(after, "after")
        return self._made_of(windowed(self.node, reach, by, texts, parameters))

    # --- keeping ------------------------------------------------------------------------

    def cache(self) -> Self:
        """Keep what is read: each column of each row is computed once, and can then be shuffled.

        >>> from trueline import View
        >>> kept = View.range(3).with_columns(y="n * n").cache()
        >>> kept.count(), kept.can_shuffle
        (3, True)
        """
        return self._made_of(Cache(self.node))


def natural(count: object, what: str) -> int:
    """Return a whole number of at least 0; anything else is an error."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InputError(f"{what}({count!r}) is not a number of rows", remedy="give an integer of at least 0")
    return count


class Groups(Generic[V]):
    """What `view.group_by(…)` returns; `agg` makes a view of it, with a row for each group.

    >>> from trueline import View
    >>> view = View.from_rows(
    ...     [{"city": "Bern", "price": 9.5}, {"city": "Zug", "price": 3.0}, {"city": "Bern"}]
    ... )
    >>> view.group_by("city").agg(rows="count(*)", total="sum(price)").to_arrow().to_pylist()
    [{'city': 'Bern', 'rows': 2, 'total': 9.5}, {'city': 'Zug', 'rows': 1, 'total': 3.0}]
    """

    __slots__ = ("_columns", "_node", "_view_of")

    def __init__(self, node: Node, columns: Sequence[str], view_of: Callable[[Node], V]) -> None:
        self._node = node
        self._columns = key_columns(node.schema, columns, "groups")
        self._view_of = view_of

    def agg(self, **aggregates: object) -> V:
        """Return a row for each group, in the order of their first rows: the key, then these aggregates.

        >>> from trueline import View
        >>> groups = View.from_rows([{"x": 1}, {"x": 4}]).group_by()
        >>> groups.agg(mean="sum(x) / count(*)", most="max(x) * :rate", rate=2).to_arrow().to_pylist()
        [{'mean': 2.5, 'most': 8}]
        """
        texts, parameters = columns_and_parameters({}, aggregates)
        return self._view_of(grouped(self._node, self._columns, texts, parameters))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise unknown(type(self), name, GROUPS)

    def __repr__(self) -> str:
        return f"<Groups by {', '.join(column.name for column in self._columns) or 'nothing'}>"
