"""Remedies of what is written in expressions and aggregates, and of what users of other libraries type."""

from __future__ import annotations

import re
import statistics
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from tests.remedies.story import Scene, done, keywords, piece, story
from trueline import types as t
from trueline.view import View
from trueline.view.expressions.hints import FUNCTIONS
from trueline.view.hints import GROUPS, VIEW
from trueline.view.plan.aggregates import _IN_GROUPS, _IN_WINDOWS

ROW: dict[str, Any] = {
    "x": 4,
    "s": "O'Hare",
    "c": True,
    "a": 1,
    "b": 2,
    "n": 5,
    "k": 1,
    "t": datetime(2026, 11, 13, 9, 30),
    "end": date(2026, 11, 14),
    "start": date(2026, 11, 13),
    "unit price": 3,
}
# A call, with one level of brackets inside.
CALL = re.compile(r"[a-z_]+\((?:[^()]|\([^()]*\))*\)")


def rows() -> View:
    """A view of one row, with the columns that remedies speak of."""
    return View.from_rows([ROW]).concat(View.from_rows([ROW]))


def value(text: str, **parameters: Any) -> Any:
    """What an expression gives for that row."""
    found = rows().with_columns({"y": text}, **parameters).to_arrow()["y"].to_pylist()
    return found[0]


def refused(scene: Scene, text: str) -> str:
    """Write an expression that is refused, and return the remedy."""
    return scene.refused(lambda: value(text))


@story(
    "view.expressions.parse",
    "instead of {sign} write {instead}",
    "a quote inside text is written \\', as in 'O\\'Hare'; better, give a parameter: :name",
    "write power(x, 2)",
    "write isnan(x) for NaN, x is null for null",
    "write cast({cast[1]} as {cast[2]})",
    "write cast(x as text)",
    "there are no methods: write {shown}",
    "write and between conditions, each in brackets",
    "write or between conditions, each in brackets",
    "write not",
    'write the expression alone, as in "x + 1"',
)
def operators_of_other_languages(scene: Scene) -> None:
    assert value(f"x > 1 {piece(refused(scene, 'x && c'), 'write (.*)')} c") is True
    assert value(piece(refused(scene, "x ** 2"), "write (.*)")) == 16
    assert value(piece(refused(scene, "x // 2"), "write (.*)")) == 2
    for text, matches in (("s =~ 'a'", True), ("s !~ 'a'", False), ("s ~ 'a'", True)):
        instead = piece(refused(scene, text), "write ((?:not )?x rlike 'a.')").replace("x", "s")
        assert value(instead) is matches
    remedy = refused(scene, "c ? a : b")
    assert value(piece(remedy, r"if\(c, a, b\)")) == 1
    assert value(piece(remedy, ":name"), name=7) == 7
    for text in ("s = 'O''Hare'", "s = 'O'Hare'"):
        remedy = refused(scene, text)
        assert value(f"s = {piece(remedy, 'as in (.*);')}") is True
        assert value(f"s = {piece(remedy, ':name')}", name="O'Hare") is True
    assert value(piece(refused(scene, "x ^ 2"), "write (.*)")) == 16
    remedy = refused(scene, "x is nan")
    assert value(piece(remedy, r"isnan\(x\)")) is value(piece(remedy, r"x is null")) is False
    assert value(piece(refused(scene, "n::text"), "write (.*)")) == "5"
    assert value(piece(refused(scene, "(n + 1)::text"), "write (.*)").replace("(x ", "(n + 1 ")) == "6"
    assert value(piece(refused(scene, "s.lower()"), "write (.*)")) == "o'hare"
    for sign, expected in (("&", False), ("|", True)):
        word = piece(refused(scene, f"(x > 1) {sign} (a > 1)"), r"write (\w+)")
        assert value(f"(x > 1) {word} (a > 1)") is expected
    assert value(f"{piece(refused(scene, '~c'), 'write (.*)')} c") is False
    assert value(piece(refused(scene, "lambda x: x + 1"), '"(.*)"')) == 5


@story("view.expressions.parse", 'use view.window(by="k", n="row_number()") or view.window(2, s="sum(x)")')
def a_window_in_an_expression(scene: Scene) -> None:
    remedy = refused(scene, "row_number() over (partition by k)")
    first, second = remedy.removeprefix("use ").split(" or ")
    assert done(first, view=rows()).to_arrow()["n"].to_pylist() == [1, 2]
    assert done(second, view=rows()).to_arrow()["s"].to_pylist() == [4, 8]


@story("view.expressions.functions.registry", "write {FUNCTIONS[name]}")
def functions_of_other_languages(scene: Scene) -> None:
    vectors = View.from_arrow(pa.table({"v": pa.array([[1, 2]], pa.list_(pa.int64(), 2))}))
    for name in FUNCTIONS:
        remedy = refused(scene, f"{name}(x)")
        for text in re.findall(r"`unit price`|x is (?:not )?null|x in (?:\(1, 2\)|:wanted)", remedy):
            value(text, **({"wanted": [4]} if ":wanted" in text else {}))
        calls = CALL.findall(remedy)
        for call in calls:
            if call.startswith("explode"):
                assert done(f"vectors.{call}", vectors=vectors).count() == 2
            elif call.startswith("size"):
                assert vectors.with_columns(y=call).to_arrow()["y"].to_pylist() == [2]
            else:
                value(call)
        for text in re.findall(r"(?:date|timestamp)'[^']*'", remedy):
            value(text)
        assert calls or name in ("col", "lit", "typeof") or " is " in remedy or " in " in remedy, remedy
    assert value(piece(refused(scene, "lit(1)"), ":value"), value=3) == 3
    assert done(piece(refused(scene, "typeof(x)"), r"view\.schema"), view=rows())["x"].type == t.int64


@story("view.expressions.functions.temporal", "write '{instead}'")
def forms_in_letters_of_spark(scene: Scene) -> None:
    view = View.from_rows([{"s": "13.11.2026"}])
    remedy = scene.refused(lambda: view.with_columns(y="to_date(s, 'dd.MM.yyyy')").to_arrow())
    found = view.with_columns(y=f"to_date(s, {piece(remedy, 'write (.*)')})")
    assert found.to_arrow()["y"].to_pylist() == [date(2026, 11, 13)]


@story(
    "view.expressions.functions.date_format",
    "use {' '.join((f'%{each}' for each in (*_PARTS, *_WHOLE, '%')))}",
)
@story(
    "view.expressions.functions.regexp",
    "write $1 for a group (up to $9), \\\\$ for a dollar sign",
    "write brackets around the part that is meant, or 0 for all that fits",
)
def patterns_that_are_not_understood(scene: Scene) -> None:
    for sign in piece(refused(scene, "date_format(t, '%Q')"), "use (.*)").split():
        assert value(f"date_format(t, '{sign}')")
    remedy = refused(scene, "regexp_replace(s, '(a)', '$7')")
    assert value(f"regexp_replace(s, '(a)', '<{piece(remedy, r'[$]1')}>')") == "O'H<a>re"
    dollar = piece(remedy, r"(\S+) for a dollar sign")
    assert value(f"regexp_replace(s, 'a', '{dollar}')") == "O'H$re"
    remedy = refused(scene, "regexp_extract(s, 'a.', 1)")
    assert value("regexp_extract(s, '(a.)', 1)") == "ar"
    assert value(f"regexp_extract(s, 'a.', {piece(remedy, 'or ([0-9])')})") == "ar"


@story(
    "view.expressions.operands",
    "text is put together with || or concat(a, b); text is made of others by cast(x as text)",
)
def text_that_is_added(scene: Scene) -> None:
    remedy = refused(scene, "s + n")
    made = piece(remedy, r"cast\(x as text\)").replace("x", "n", 1)
    assert value(f"s {piece(remedy, r'[|]+')} {made}") == "O'Hare5"
    assert value(piece(remedy, r"concat\(a, b\)").replace("a, b", f"s, {made}")) == "O'Hare5"


@story(
    "view.hints",
    "count its rows: view.count(); view.row_count is known without reading, or None",
    "write {remedy}",
    "write {instead[name]}",
    "did you mean {near[0]}?",
)
def what_users_of_other_libraries_type(scene: Scene) -> None:
    view = View.from_rows([{"x": 1, "y": 2, "z": 3, "t": 1, "old": 0}] * 2)
    remedy = scene.refused(lambda: len(view))
    assert [done(call, view=view) for call in re.findall(r"view\.count\(\)|view\.row_count", remedy)] == [
        2,
        2,
    ]
    for key in ("x", ["x", "y"], 0, slice(2), None):
        assert _typed(scene, scene.refused(lambda key=key: view[key]), view)
    for name in VIEW:
        remedy = scene.refused(lambda name=name: getattr(view, name))
        assert _typed(scene, remedy, view) or name in ("lazy", "melt"), remedy
    for name in GROUPS:
        assert _typed(scene, scene.refused(lambda name=name: getattr(view.group_by("x"), name)), view)
    assert hasattr(view, piece(scene.refused(lambda: view.fliter("x > 1")), r"mean (\w+)"))


def _typed(scene: Scene, remedy: str, view: View) -> int:
    """Type each call and each attribute of a view that a remedy names; return how many there were."""
    text = (
        remedy.replace("[…]", '["x"]').replace("select(…)", 'select("x")').replace("_set(…)", '_set("x", 2)')
    )
    text = text.removeprefix("write ").replace("for row in view: …", "list(view)")
    path = scene.folder / "written"
    dataset = scene.ws.create(f"d{len(list(scene.ws))}") if "ds." in text else None
    names = {"view": view, "other": view, "ds": dataset, "path": path}
    typed = 0
    for part in re.split(r"; |, or |(?<=[)\]]) (?:for|keeps|is|are) |, (?=view\.)|: it ", text):
        if re.search(r"\bview\b(?! of)", part) and "to_spark" not in part:
            path.unlink(missing_ok=True)
            made = done(part, **names)
            if isinstance(made, View):
                made.to_arrow()
            typed += 1
    return typed


@story(
    "view.plan.aggregates",
    "instead of {word}: {instead[word]}",
    "did you mean {near[0]}?",
    "write one of {', '.join(known)} of a column or an expression, as in sum(x * 2)"
    "{'; compute with the results in with_columns()' if window else ''}",
    "aggregate twice: group_by(…).agg(…), then group_by(…).agg(…) of that",
    "write row_number()",
    "write {_form(word, kind)}",
    "write lag(x, 1)",
    "write quantile(x, 0.9)",
)
@story(
    "view.plan.group_by",
    "say which of its values is meant, as in first({quoted(name)}), or group by it too",
)
def aggregates_that_are_written_otherwise(scene: Scene) -> None:
    view = View.from_rows([{"x": float(n), "k": n % 2, "unit price": n} for n in range(6)])

    def grouped(text: str) -> list[Any]:
        return list(view.group_by("k").agg(y=text).to_arrow()["y"].to_pylist())

    def windowed(text: str) -> list[Any]:
        return list(view.window(1, y=text).to_arrow()["y"].to_pylist())

    for word in _IN_GROUPS:
        instead = piece(scene.refused(lambda word=word: grouped(f"{word}(x)")), r": (.*)")
        text = re.sub(r" is exact|, after.*|.*sort by ", "", instead)
        found = grouped(text)
        if word.endswith("_pop"):
            exact = statistics.pstdev if word == "stddev_pop" else statistics.pvariance
            assert [round(each, 9) for each in found] == [round(exact([0.0, 2.0, 4.0]), 9)] * 2
    instead = piece(scene.refused(lambda: grouped("collect_set(x)")), r"distinct\(\)")
    assert done(f"view.concat(view).{instead}", view=view).group_by("k").agg(y="collect(x)").count() == 2
    for word in _IN_WINDOWS:
        instead = piece(scene.refused(lambda word=word: windowed(f"{word}(x)")), r": (.*)")
        windowed(re.sub(r" is exact|, which.*", "", instead))
    assert grouped(piece(scene.refused(lambda: grouped("summ(x)")), r"mean (\w+)") + "(x)") == [6, 9]
    for text in (grouped, windowed):
        remedy = scene.refused(lambda text=text: text("x + 1"))
        assert text(piece(remedy, r"as in (sum\(x \* 2\))"))
        for word in piece(remedy, "one of (.*) of a column").split(", "):
            assert word in ("any", "all", "row_number", "quantile") or text(f"{word}(x)")
    call = piece(remedy, r"with_columns\(\)").replace("()", "(y='y + 1')")
    made = done(f"view.{call}", view=view.window(1, y="sum(x)"))
    assert made.to_arrow()["y"].to_pylist()[:2] == [1, 2]
    remedy = scene.refused(lambda: grouped("max(sum(x))"))
    first, second = re.findall(r"group_by\(…\)\.agg\(…\)", remedy)
    once = done("view." + first.replace("…", "'k'", 1).replace("…", "y='sum(x)'"), view=view)
    twice = done("once." + second.replace("…", "", 1).replace("…", "y='max(y)'"), once=once)
    assert twice.to_arrow()["y"].to_pylist() == [9]
    for wrong in ("row_number(x)", "sum()", "lag(x, y)", "lag()", "rank()", "quantile(x)", "quantile(x, 7)"):
        assert len(windowed(piece(scene.refused(lambda wrong=wrong: windowed(wrong)), "write (.*)"))) == 6
    for column in ("x", "unit price"):
        text = f"sum(x) + `{column}`"
        remedy = scene.refused(lambda text=text: grouped(text))
        assert len(grouped(f"sum(x) + {piece(remedy, r'first.[^)]*.')}")) == 2
        assert view.group_by("k", column).agg(y=text).count() == 6


@story(
    "view.plan.fill_null",
    "give a value of that type, or convert the column first: {conversion(name, found.kind)}",
    "write fill_null(0), or fill_null(price=0)",
    "name the columns: fill_null(price=0)",
)
def nulls_that_cannot_be_filled(scene: Scene) -> None:
    for name in ("price", "unit price"):
        view = View.from_arrow(pa.table({name: pa.array([1, None], pa.int64())}))
        remedy = scene.refused(lambda view=view, name=name: view.fill_null({name: 0.5}))
        assert view.fill_null({name: 5}).to_arrow()[name].to_pylist() == [1, 5]
        made = done("view." + piece(remedy, r"with_columns\(.*"), view=view)
        assert made.fill_null({name: 0.5}).to_arrow()[name].to_pylist() == [1, 0.5]
    view = View.from_arrow(pa.table({"price": pa.array([1, None], pa.int64())}))
    for wrong in (view.fill_null, lambda: view.fill_null("none")):
        for call in re.findall(r"fill_null\(\w[^)]*\)", scene.refused(wrong)):
            assert done(f"view.{call}", view=view).to_arrow()["price"].to_pylist() == [1, 0]


@story(
    "view.plan.join",
    'leave on= out, or join with how="inner"',
    'name the columns whose values are to be equal, as in on="id"; for every pair of rows write how="cross"',
    "use one of {', '.join(_HOW)}{_OTHERWISE.get(how, '')}",
)
def joins_that_are_not_known(scene: Scene) -> None:
    one, two = View.from_rows([{"id": 1, "x": 1}]), View.from_rows([{"id": 1, "y": 2}])
    remedy = scene.refused(lambda: one.join(two, on="id", how="cross"))
    assert piece(remedy, "leave on= out")
    assert one.join(two, how="cross").count() == 1
    assert one.join(two, on="id", **keywords(remedy, r'how="inner"')).count() == 1
    remedy = scene.refused(lambda: one.join(two))
    assert one.join(two, **keywords(remedy, r'on="id"')).count() == 1
    assert one.join(two, **keywords(remedy, r'how="cross"')).count() == 1
    for how in ("outer", "leftanti", "sideways"):
        remedy = scene.refused(lambda how=how: one.join(two, on="id", how=how))
        for each in piece(remedy, r"use one of ([^;]*)").split(", "):
            assert one.join(two, **({} if each == "cross" else {"on": "id"}), how=each).count() in (0, 1)
    assert one.join(
        two, on="id", how=piece(scene.refused(lambda: one.join(two, on="id", how="outer")), r"is (\w+)")
    )
    remedy = scene.refused(lambda: one.join(two, on="id", how="asof"))
    moments = one.with_columns(at="1"), two.with_columns(at="1")
    for how in piece(remedy, "with (.*)").split(" or "):
        given = {piece(remedy, r"give (\w+)="): "at", "how": how}
        assert moments[0].join(moments[1], on="id", **given).count() == 1


def labelled(*values: str, codes: tuple[int, ...] = (0, 1)) -> View:
    """A column of codes that say what they mean."""
    made = View.from_arrow(
        pa.table([pa.array(codes)], schema=pa.schema([t.field("k", t.category(len(values)))]))
    )
    return made.annotate("k", category_values=list(values))


@story(
    "view.plan.same_type",
    "convert the column {place}: {call}",
    "convert the column {one[1]}: {first}, and the column {other[1]}: {second}",
    "convert both columns: {first}",
    "convert the column {side[1]}: {_decoded(side[0])}",
)
def columns_of_two_types(scene: Scene) -> None:
    numbers, texts = View.from_rows([{"k": 1}]), View.from_rows([{"k": "1"}])
    doubles = View.from_rows([{"k": 1.0}])
    days = View.from_rows([{"k": date(2026, 11, 13)}])
    ab, ba, abc = labelled("a", "b"), labelled("b", "a"), labelled("a", "b", "c")
    named = View.from_rows([{"k": "a"}])
    for left, right, rows_ in (
        (numbers, texts, 1),
        (numbers, doubles, 1),
        (ab, ba, 2),
        (ab, abc, 2),
        (ab, named, 1),
    ):
        remedy = scene.refused(lambda left=left, right=right: left.join(right, on="k"))
        one, two = _converted(remedy, left, right, "on the left", "on the right")
        assert one.join(two, on="k").count() == rows_
    for left, right in ((numbers, texts), (numbers, days), (ab, ba), (named, ab)):
        remedy = scene.refused(lambda left=left, right=right: left.concat(right))
        one, two = _converted(remedy, left, right, "in view 1", "in view 2")
        assert one.concat(two).to_arrow()["k"].null_count == 0
    other = numbers.rename(n="k")
    remedy = scene.refused(
        lambda: doubles.with_columns(k="cast(k as decimal(9, 2))").join(other, on={"k": "n"})
    )
    one, two = _converted(
        remedy, doubles.with_columns(k="cast(k as decimal(9, 2))"), other, "on the left", "on the right"
    )
    assert one.join(two, on={"k": "n"}).count() == 1


def _converted(remedy: str, one: View, two: View, *places: str) -> list[View]:
    """Convert views as a remedy says."""
    if both := re.fullmatch(r"convert both columns: (.*)", remedy):
        return [done(f"view.{both[1]}", view=view) for view in (one, two)]
    found = []
    for view, place in zip((one, two), places, strict=True):
        call = re.search(rf"the column {place}: (\w+\(.*?\))(?:$|, and)", remedy)
        found.append(done(f"view.{call[1]}", view=view) if call else view)
    assert (found[0] is not one) or (found[1] is not two), remedy
    return found


@story("view.plan.decode", "decode() takes categories with annotated values; cast(x as int64) gives codes")
def codes_without_a_meaning(scene: Scene) -> None:
    view = View.from_arrow(pa.table([pa.array([0, 1])], schema=pa.schema([t.field("x", t.category(2))])))
    remedy = scene.refused(lambda: view.decode("x"))
    codes = view.with_columns(y=piece(remedy, r"cast\(x as int64\)"))
    assert codes.to_arrow()["y"].to_pylist() == [0, 1]
    call = piece(remedy, r"decode\(\)").replace("()", "('k')")
    assert done(f"view.{call}", view=labelled("a", "b")).to_arrow()["k"].to_pylist() == ["a", "b"]


@story("view.schema", "cast it before: column.cast(pyarrow.timestamp({kind.unit!r}, 'UTC'))")
def times_in_a_zone_that_is_not_there(scene: Scene) -> None:
    column = pa.array([0], pa.timestamp("ms", "Mars/Olympus"))
    remedy = scene.refused(lambda: View.from_arrow(pa.table({"t": column})))
    cast = done(piece(remedy, r"column\.cast\(.*\)"), column=column, pyarrow=pa)
    assert View.from_arrow(pa.table({"t": cast})).count() == 1
