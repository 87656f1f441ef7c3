"""Random chains of operators: a source and up to six links, each a verb and a number it is made by.

A link looks at the columns there are and chooses among what the verb can do with them, by a generator that
its number begins. So a chain is repeated by its links alone, and stays valid when links are left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

import trueline as tl
from tests.spark.lowering.nasty import every_type, not_stored
from trueline import types as t
from trueline.testing.generate import mixed
from trueline.view import View
from trueline.view.schema import Column

Link: TypeAlias = tuple[str, int]
# Enough for several partitions, few enough for joins on top of joins.
ROWS, PARTNERS = 90, 24

IN_MEMORY: dict[str, Callable[[], View]] = {
    "nasty": lambda: tl.View.from_arrow(not_stored(ROWS, 1)),
    "mixed": lambda: mixed(ROWS),
    "numbers": lambda: tl.View.range(ROWS).with_columns(k="n % 7", x="n * 0.1 - 3"),
    "nothing": lambda: tl.View.from_arrow(every_type(ROWS, 1)).filter("i > 100"),
}
# Slices that Spark reads itself, and the current rows of a keyed dataset, by ranges of its state.
SOURCES = (*IN_MEMORY, "slices", "keyed")


@contextmanager
def opened(folder: Path) -> Iterator[dict[str, View]]:
    """Yield the sources of chains by their names."""
    with tl.open(folder, create=True) as ws:
        rows = every_type(ROWS, 1)
        slices, keyed = ws.create("slices"), ws.create("keyed", merge=tl.merge.upsert("n"))
        for first in range(0, ROWS, 30):
            slices.append(rows.drop_columns(["large", "v", "p"]).slice(first, 30))
        # Rows of the first commit that the second corrects.
        keyed.append(rows.set_column(0, "i", pa.array(range(ROWS))).slice(0, 50))
        keyed.append(rows.slice(20))
        stored = {"slices": slices.view(), "keyed": keyed.view()}
        yield {name: make() for name, make in IN_MEMORY.items()} | stored


class Choice:
    """What a link chooses among the columns of its input; names it makes are of its place in the chain."""

    def __init__(self, view: View, number: int, place: int) -> None:
        self.view, self.place = view, place
        self.random = random.Random(number)

    @property
    def columns(self) -> list[Column]:
        """The columns that have names."""
        return list(self.view.schema.visible)

    def having(self, is_meant: Callable[[t.Type], bool]) -> list[str]:
        """Return the names of columns by their types."""
        return [column.name for column in self.columns if is_meant(column.type)]

    def some(self, names: Sequence[str], most: int = 3) -> list[str]:
        """Return one to `most` of the names; none of none."""
        return self.random.sample(names, self.random.randint(1, min(most, len(names)))) if names else []

    def one(self, names: Sequence[str]) -> str | None:
        """Return one of the names; None of none."""
        return self.random.choice(names) if names else None

    def fresh(self, name: str) -> str:
        """Return a name that no column has."""
        return f"{name}{self.place}"

    def type_of(self, name: str) -> t.Type:
        """Return the type of a column."""
        return self.view.schema[name].type


def _is_number(kind: t.Type) -> bool:
    return kind in t.NUMBERS or isinstance(kind, t.Decimal)


def _is_ordered(kind: t.Type) -> bool:
    return kind.has_order


def _is_moment(kind: t.Type) -> bool:
    return kind in t.NUMBERS or kind == t.date or isinstance(kind, t.Timestamp)


def _is_vector(kind: t.Type) -> bool:
    return isinstance(kind, t.Vector)


def _quoted(name: str) -> str:
    return f"`{name}`"


# --- single rows ------------------------------------------------------------------------------------


def _select(at: Choice) -> View:
    names = [column.name for column in at.columns]
    at.random.shuffle(names)
    return at.view.select(*names[: max(2, len(names) * 2 // 3)])


def _rename(at: Choice) -> View:
    name = at.random.choice([column.name for column in at.columns])
    return at.view.rename({name: at.fresh("renamed")})


def _condition(at: Choice) -> str:
    floats, texts = at.having(t.FLOATS.__contains__), at.having(lambda kind: kind == t.text)
    any_one = at.random.choice([column.name for column in at.columns])
    ways = [f"{_quoted(any_one)} is not null"]
    ways += [f"{_quoted(name)} >= 0" for name in floats]
    ways += [f"{_quoted(name)} <> 'a'" for name in texts]
    return at.random.choice(ways)


def _filter(at: Choice) -> View:
    return at.view.filter(_condition(at))


def _with_columns(at: Choice) -> View:
    floats = at.having(t.FLOATS.__contains__)
    made = f"{_quoted(at.random.choice(floats))} * 2 + 1" if floats else _condition(at)
    return at.view.with_columns({at.fresh("made"): made})


def _with_row_id(at: Choice) -> View:
    return at.view.with_row_id(at.fresh("id"))


def _drop_nulls(at: Choice) -> View:
    return at.view.drop_nulls(*at.some([column.name for column in at.columns], 2))


def _fill_null(at: Choice) -> View:
    names = [column.name for column in at.columns if column.nullable and column.type in t.NUMBERS]
    return at.view.fill_null(0, *at.some(names)) if names else at.view


def _explode(at: Choice) -> View:
    name = at.one(at.having(_is_vector))
    return at.view if name is None else at.view.explode(name, outer=at.random.random() < 0.5)


def _sample(at: Choice) -> View:
    return at.view.sample(0.7, seed=at.random.randrange(9))


def _draw(at: Choice) -> View:
    return at.view.sample(1.1, seed=at.random.randrange(9), replace=True)


def _split(at: Choice) -> View:
    by = at.one(at.having(_is_ordered))
    return at.view.split([0.6, 0.4], seed=at.random.randrange(9), by=by)[0]


def _cache(at: Choice) -> View:
    return at.view.cache()


# --- order and number ---------------------------------------------------------------------------------


def _sort(at: Choice) -> View:
    names = at.some(at.having(_is_ordered))
    if not names:
        return at.view
    return at.view.sort(*names, descending=[at.random.random() < 0.5 for _ in names])


def _shuffle(at: Choice) -> View:
    return at.view.shuffle(at.random.randrange(-9, 9))


def _limit(at: Choice) -> View:
    return at.view.limit(at.random.choice([0, 1, 17, 60, 200_000]))


def _skip(at: Choice) -> View:
    return at.view.skip(at.random.choice([0, 1, 11, 50]))


def _tail(at: Choice) -> View:
    return at.view.tail(at.random.choice([0, 3, 40]))


# --- several rows ---------------------------------------------------------------------------------------


def _aggregates(at: Choice, *, window: bool) -> dict[str, str]:
    numbers, ordered = at.having(_is_number), at.having(_is_ordered)
    anything = [column.name for column in at.columns]
    ways = ["count(*)", *(f"count({_quoted(name)})" for name in anything[:3])]
    for name in numbers:
        ways += [f"{call}({_quoted(name)})" for call in ("sum", "avg", "variance", "median")]
    for name in ordered:
        ways += [f"{call}({_quoted(name)})" for call in ("min", "max", "first", "last")]
    single = at.having(lambda kind: kind.is_primitive)
    if window:
        ways += [f"lag({_quoted(name)}, 2)" for name in anything[:3]]
        ways += ["row_number()", *(f"rank({_quoted(name)} desc)" for name in ordered[:2])]
    else:
        ways += [f"count(distinct {_quoted(name)})" for name in single]
        ways += [f"collect({_quoted(name)})" for name in single[:2]]
    chosen = at.random.sample(ways, min(len(ways), at.random.randint(1, 5)))
    return {at.fresh(f"agg{number}_"): text for number, text in enumerate(chosen)}


def _group_by(at: Choice) -> View:
    keys = at.some(at.having(_is_ordered), 2)
    return at.view.group_by(*keys).agg(**_aggregates(at, window=False))


def _distinct(at: Choice) -> View:
    names = at.some(at.having(_is_ordered), 2)
    return at.view.distinct(*names) if names else at.view


def _window(at: Choice) -> View:
    by = at.some(at.having(_is_ordered), 2) if at.random.random() < 0.6 else None
    return at.view.window(
        at.random.randrange(3), at.random.randrange(3), by=by, **_aggregates(at, window=True)
    )


# --- several views ----------------------------------------------------------------------------------------


def _partners(at: Choice) -> View:
    """Rows to join with: some of the view itself, or of another seed, under other names."""
    few = at.view.sort(*at.some(at.having(_is_ordered), 1)) if at.having(_is_ordered) else at.view
    few = few.limit(PARTNERS) if at.random.random() < 0.5 else few.sample(0.2, seed=3).limit(PARTNERS)
    return few.rename({column.name: f"{at.fresh('r')}_{column.name}" for column in at.columns})


def _join(at: Choice) -> View:
    keys = at.some(at.having(_is_ordered), 2)
    if not keys:
        return at.view
    on = {name: f"{at.fresh('r')}_{name}" for name in keys}
    how = at.random.choice(["inner", "left", "right", "full", "semi", "anti"])
    return at.view.join(_partners(at), on=on, how=how)


def _join_itself(at: Choice) -> View:
    """Rows with those of the same values: of a source all of them, which Spark may read side by side."""
    keys = at.random.sample(found, min(3, len(found))) if (found := at.having(_is_ordered)) else []
    if not keys:
        return at.view
    other = at.view.rename({column.name: f"{at.fresh('j')}_{column.name}" for column in at.columns})
    other = other.limit(PARTNERS) if at.place else other
    how = at.random.choice(["inner", "left"])
    return at.view.join(other, on={name: f"{at.fresh('j')}_{name}" for name in keys}, how=how)


def _cross(at: Choice) -> View:
    return at.view.join(_partners(at).limit(2), how="cross")


def _as_of(at: Choice) -> View:
    time = at.one(at.having(_is_moment))
    key = at.one([name for name in at.having(_is_ordered) if name != time])
    if time is None:
        return at.view
    right = at.fresh("r")
    how = at.random.choice(["inner", "left", "right", "full", "semi", "anti"])
    on = None if key is None or at.random.random() < 0.2 else {key: f"{right}_{key}"}
    return at.view.join(_partners(at), on=on, as_of=(time, f"{right}_{time}"), how=how)


def _concat(at: Choice) -> View:
    return at.view.concat(at.view.shuffle(5).limit(30))


def _zip(at: Choice) -> View:
    return at.view.zip(_partners(at))


VERBS: dict[str, Callable[[Choice], View]] = {
    name.removeprefix("_"): function
    for name, function in (
        (each.__name__, each)
        for each in (
            *(_select, _rename, _filter, _with_columns, _with_row_id, _drop_nulls, _fill_null, _explode),
            *(_sample, _draw, _split, _cache, _sort, _shuffle, _limit, _skip, _tail),
            *(_group_by, _distinct, _window, _join, _join_itself, _cross, _as_of, _concat, _zip),
        )
    )
}


def made(source: View, links: Sequence[Link]) -> View:
    """Return the view of a chain."""
    view = source
    for place, (verb, number) in enumerate(links):
        view = VERBS[verb](Choice(view, number, place))
    return view
