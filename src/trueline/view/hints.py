"""What users of pandas, polars and PySpark type first, and what to write here instead.

Each of these is an error that names the call, so that nobody has to look for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Never, NoReturn, ParamSpec, TypeAlias, TypeVar

from trueline.errors import UnknownOperation

P = ParamSpec("P")
R = TypeVar("R")
# What to write instead of a call, from its arguments and from the keywords that the verb does not have.
Instead: TypeAlias = Callable[[tuple[object, ...], Mapping[str, object]], str | None]

_SELECT: Final = 'view.select("x") for a view of it, view.to_arrow()["x"] for its values'
_ROWS: Final = "for row in view: …, or list(view.rows())"
_CONCAT: Final = "view.concat(other)"
_DISTINCT: Final = 'view.distinct(), or view.distinct("x")'
_RENAME: Final = 'view.rename(new="old")'
_GROUP: Final = 'view.group_by("x").agg(total="sum(y)")'
_ALL: Final = 'view.group_by().agg(total="sum(y)")'
_SORT: Final = 'view.sort("x"), or view.sort("x", descending=True)'
_FILL: Final = "view.fill_null(0), or view.fill_null(x=0)"
_DROP: Final = 'view.drop_nulls(), or view.drop_nulls("x")'
_ADD: Final = 'view.with_columns(y="x + 1")'
_FILTER: Final = 'view.filter("x > 1")'
_ARROW: Final = "view.to_arrow()"
_JOIN: Final = 'view.join(other, on="x")'
_CAST: Final = 'view.with_columns(x="cast(x as int64)")'
_SCHEMA: Final = "view.schema"
_WINDOW: Final = 'view.window(1, y="lag(x)")'

# By what was typed: what to write.
VIEW: Final = {
    "agg": _ALL,
    "aggregate": _ALL,
    "append": f"{_CONCAT}, or ds.append(view) for a dataset",
    "apply": f"{_ADD}; for code of your own, view.batches()",
    "assign": _ADD,
    "astype": _CAST,
    "cast": _CAST,
    "collect": f"{_ARROW}, or {_ROWS}",
    "crossJoin": 'view.join(other, how="cross")',
    "describe": 'view.group_by().agg(rows="count(*)", mean="avg(x)", most="max(x)")',
    "diff": 'view.window(1, before="lag(x)").with_columns(change="x - before")',
    "drop_duplicates": _DISTINCT,
    "dropDuplicates": _DISTINCT,
    "dropna": _DROP,
    "dtypes": _SCHEMA,
    "empty": "view.count() == 0",
    "except_": 'view.join(other, on="x", how="anti")',
    "exceptAll": 'view.join(other, on="x", how="anti")',
    "fillna": _FILL,
    "first": "next(iter(view), None), or view.head(1)",
    "groupBy": _GROUP,
    "groupby": _GROUP,
    "height": "view.count()",
    "iloc": "view.skip(5).limit(3)",
    "info": _SCHEMA,
    "intersect": 'view.join(other, on="x", how="semi")',
    "is_empty": "view.count() == 0",
    "isEmpty": "view.count() == 0",
    "isna": 'view.with_columns(gone="x is null")',
    "isnull": 'view.with_columns(gone="x is null")',
    "iter_rows": _ROWS,
    "iterrows": _ROWS,
    "itertuples": _ROWS,
    "join_asof": 'view.join(other, on="x", as_of="t")',
    "lazy": "view: it reads nothing until it is asked",
    "len": "view.count()",
    "loc": f"{_FILTER}, or view.select(…)",
    "map": f"{_ADD}; for code of your own, view.batches()",
    "melt": "explode(), or concat() of selections",
    "merge": _JOIN,
    "merge_asof": 'view.join(other, on="x", as_of="t")',
    "n_unique": 'view.group_by().agg(n="count_distinct(x)")',
    "nunique": 'view.group_by().agg(n="count_distinct(x)")',
    "orderBy": _SORT,
    "order_by": _SORT,
    "persist": "view.cache()",
    "pivot": 'view.group_by("x").agg(a="sum(if(y = 1, z, null))", b="sum(if(y = 2, z, null))")',
    "printSchema": _SCHEMA,
    "query": _FILTER,
    "rdd": "view.to_spark(), or view.cursor_set(…) for several threads",
    "rolling": 'view.window(2, mean="avg(x)")',
    "selectExpr": _ADD,
    "shape": "(view.count(), len(view.columns))",
    "shift": _WINDOW,
    "slice": "view.skip(5).limit(3)",
    "sort_values": _SORT,
    "take": "view.head(5)",
    "toDF": _RENAME,
    "toPandas": "view.to_pandas()",
    "to_dict": "view.to_arrow().to_pydict()",
    "to_dicts": "list(view.rows())",
    "to_csv": "view.write_csv(path)",
    "to_json": "view.write_json(path)",
    "to_numpy": "view.to_arrow()[…].to_numpy(), or view.batches()",
    "to_parquet": "view.write_parquet(path)",
    "to_table": _ARROW,
    "tolist": "list(view.rows())",
    "union": _CONCAT,
    "unionAll": _CONCAT,
    "unionByName": _CONCAT,
    "unique": _DISTINCT,
    "value_counts": 'view.group_by("x").agg(n="count(*)")',
    "values": f"{_ARROW}, or {_ROWS}",
    "vstack": _CONCAT,
    "where": _FILTER,
    "width": "len(view.columns)",
    "withColumn": _ADD,
    "withColumnRenamed": _RENAME,
    "with_column": _ADD,
    "with_row_count": 'view.window(n="row_number()")',
    "with_row_index": 'view.window(n="row_number()")',
    "write": "view.write_parquet(path), or ds.append(view)",
}
GROUPS: Final = {
    "apply": 'view.group_by("x").agg(total="sum(y)")',
    "avg": 'view.group_by("x").agg(mean="avg(y)")',
    "count": 'view.group_by("x").agg(n="count(*)")',
    "first": 'view.group_by("x").agg(y="first(y)"), or view.distinct("x")',
    "len": 'view.group_by("x").agg(n="count(*)")',
    "max": 'view.group_by("x").agg(most="max(y)")',
    "mean": 'view.group_by("x").agg(mean="avg(y)")',
    "median": 'view.group_by("x").agg(middle="median(y)")',
    "min": 'view.group_by("x").agg(least="min(y)")',
    "nunique": 'view.group_by("x").agg(n="count_distinct(y)")',
    "size": 'view.group_by("x").agg(n="count(*)")',
    "std": 'view.group_by("x").agg(spread="stddev(y)")',
    "sum": 'view.group_by("x").agg(total="sum(y)")',
}


class ViewHints:
    """What a view is not: neither a list nor a mapping, since both would read rows at every turn."""

    __slots__ = ()

    if not TYPE_CHECKING:  # where types are checked a name that is not there is an error already

        def __getattr__(self, name: str) -> NoReturn:
            raise unknown(type(self), name, VIEW)

    def __len__(self) -> int:
        raise UnknownOperation(
            "a view has no length before it is read",
            remedy="count its rows: view.count(); view.row_count is known without reading, or None",
        )

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: object) -> Never:
        shown = f"{key!r:.80}"
        if isinstance(key, slice | int):
            remedy = "view.skip(5).limit(3) are rows by their number; view.head(), view.tail()"
        elif isinstance(key, str):
            remedy = f"view.select({shown}) is a view of it, view.to_arrow()[{shown}] are its values"
        elif isinstance(key, list | tuple):
            remedy = f"view.select({', '.join(f'{each!r:.80}' for each in key)})"
        else:
            remedy = f"{_FILTER} keeps rows"
        raise UnknownOperation(f"view[{shown}]: a view is not a mapping", remedy=f"write {remedy}")


def hinted(instead: Instead) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a verb an error that says what to write where it is given keywords that it does not have."""

    def decorate(verb: Callable[P, R]) -> Callable[P, R]:
        code: Any = verb.__code__
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @wraps(verb)
        def called(*given: P.args, **named: P.kwargs) -> R:
            other = {name: value for name, value in named.items() if name not in known}
            if other and (write := instead(given[1:], other)) is not None:
                problem = f"{code.co_name}() has no argument {next(iter(other))!r}"
                raise UnknownOperation(problem, remedy=f"write {write}")
            return verb(*given, **named)

        return called

    return decorate


def computed_first(columns: tuple[object, ...], texts: Mapping[str, object]) -> str:
    """Write `select("y", x="a + b")` as it is written here.

    >>> computed_first(("y",), {"x": "a + b"})
    'view.with_columns(x="a + b").select("y", "x")'
    """
    made = ", ".join(f"{name}={json.dumps(str(text), ensure_ascii=False)}" for name, text in texts.items())
    names = ", ".join(json.dumps(str(each), ensure_ascii=False) for each in (*columns, *texts))
    return f"view.with_columns({made}).select({names})"


def directed(columns: tuple[object, ...], words: Mapping[str, object]) -> str | None:
    """Write `sort("x", ascending=False)` as it is written here.

    >>> directed(("x",), {"ascending": False}), directed((), {"by": ["x", "y"]})
    ('view.sort("x", descending=True)', 'view.sort("x", "y")')
    """
    by = words.get("by", ())
    names = [*columns, *(by if isinstance(by, list | tuple) else [by])]
    down: object = words.get("reverse", words.get("desc", False))
    if "ascending" in words:
        up = words["ascending"]
        down = [not each for each in up] if isinstance(up, list | tuple) else not up
    shown = ", ".join(json.dumps(str(name), ensure_ascii=False) for name in names)
    if not names or not words.keys() <= {"by", "reverse", "desc", "ascending"}:
        return None
    return f"view.sort({shown}, descending={down!r})" if down else f"view.sort({shown})"


def unknown(kind: type, name: str, instead: dict[str, str]) -> AttributeError:
    """Return the error of a name that an object does not have."""
    if name.startswith("_"):
        return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name)
    if name in instead:
        remedy = f"write {instead[name]}"
    else:
        near = get_close_matches(name, [each for each in dir(kind) if not each.startswith("_")], n=1)
        remedy = f"did you mean {near[0]}?" if near else "docs/views.md lists what a view can do"
    return UnknownOperation(f"a {kind.__name__} has no {name!r}", remedy=remedy)
