"""K1 and K2: the columns of a view and their annotations."""

from __future__ import annotations

from functools import partial

from trueline import types as t
from trueline.testing.kit import Broken, NotApplicable, holds, refused
from trueline.testing.protocol import ViewLike
from trueline.testing.read import token
from trueline.testing.subjects import ViewSubject
from trueline.view.cursor.row import Key
from trueline.view.schema import Schema

_NONSENSE = "trueline: no such name"


@holds("view", "K1.one_schema", "view:C1")
def one_schema(subject: ViewSubject) -> None:
    """A view has one schema object, and so have all its cursors."""
    view = subject.view
    schema = view.schema
    opened = [view.cursor([]), view.cursor(subject.all), view.cursor(subject.all, seed=1)]
    opened += [*view.cursor_set(subject.all, n=3), *view.cursor_set([], n=3, seed=1)]
    try:
        if view.schema is not schema:
            raise Broken("schema is a new object each time", "make it once, when the view is made")
        if any(cursor.schema is not schema for cursor in opened):
            raise Broken("a cursor has a schema of its own", "give cursors the schema object of the view")
    finally:
        for cursor in opened:
            cursor.close()


@holds("view", "K1.places", "view:C2")
def places(subject: ViewSubject) -> None:
    """Columns are at their index, from 0 on, and at no other."""
    schema = subject.view.schema
    for place in range(len(schema)):
        if schema[place].index != place:
            raise Broken(
                f"index {schema[place].index} at place {place}",
                "count columns from 0",
                column=schema[place].name,
            )
    for beyond in (len(schema), -1):
        if not refused(partial(schema.__getitem__, beyond)):
            raise Broken(f"schema[{beyond}] is a column", "raise for indexes that do not exist")


@holds("view", "K1.names", "view:C3")
def names(subject: ViewSubject) -> None:
    """Names are text that is not empty, and nothing is found under the empty name."""
    for column in subject.view.schema:
        name: object = column.name
        if not isinstance(name, str) or not name:
            raise Broken(
                f"column {column.index} is named {column.name!r}",
                "give every column a name",
                column=column.name,
            )
    if not refused(lambda: subject.view.schema[""]):
        raise Broken("a column is found under the empty name", "raise for the empty name")


@holds("view", "K1.hidden", "view:C4")
def hidden(subject: ViewSubject) -> None:
    """A name means its rightmost column; the others of that name are hidden."""
    schema = subject.view.schema
    last = {column.name: column.index for column in schema}
    for column in schema:
        if column.is_hidden == (last[column.name] == column.index):
            raise Broken(
                f"column {column.index} {'is' if column.is_hidden else 'is not'} hidden",
                "hide all but the last column of a name",
                column=column.name,
            )
        if schema[column.name].index != last[column.name]:
            raise Broken(
                f"the name means column {schema[column.name].index}, not {last[column.name]}",
                "let a name mean its last column",
                column=column.name,
            )


@holds("view", "K1.lookup", "view:C5")
def lookup(subject: ViewSubject) -> None:
    """An unknown name raises, or gives None with get."""
    schema = subject.view.schema
    if not refused(lambda: schema[_NONSENSE]):
        raise Broken("a column is found under an unknown name", "raise for unknown names")
    if schema.get(_NONSENSE) is not None:
        raise Broken("get() finds a column under an unknown name", "return None")
    for name in schema.names:
        found = schema.get(name)
        if found is None or found.type != schema[name].type:
            raise Broken("get() and [] find different columns", "let both find the same", column=name)


@holds("view", "K1.beyond", "view:C17")
def beyond(subject: ViewSubject) -> None:
    """A cursor over a column that is not there is refused."""
    view, count = subject.view, len(subject.view.schema)
    for wrong in (count, -1, _NONSENSE):
        if not refused(partial(_opened, view, wrong)):
            raise Broken(f"cursor([{wrong!r}]) opens", "refuse columns that are not there")
        if not refused(partial(_opened_set, view, wrong)):
            raise Broken(f"cursor_set([{wrong!r}]) opens", "refuse columns that are not there")


def _opened(view: ViewLike, column: Key) -> None:
    view.cursor([column]).close()


def _opened_set(view: ViewLike, column: Key) -> None:
    for each in view.cursor_set([column], n=2):
        each.close()


@holds("view", "K1.foreign", "view:C17")
def foreign(subject: ViewSubject) -> None:
    """A cursor over a column of another view is refused, even if it has the same name and place."""
    view = subject.view
    if not len(view.schema):
        raise NotApplicable("there are no columns")
    stranger = Schema(view.schema.fields)[0]
    remedy = "compare by identity: schema.find() does"
    if not refused(partial(_opened, view, stranger)):
        raise Broken("a cursor opens for a column of another view", remedy, column=stranger.name)
    if not refused(partial(_opened_set, view, stranger)):
        raise Broken("a set opens for a column of another view", remedy, column=stranger.name)


@holds("view", "K2.annotations", "view:C18")
def annotated(subject: ViewSubject) -> None:
    """Annotations of a column: different kinds, each with a value of its type."""
    for column in subject.view.schema:
        about = column.annotations
        kinds = [each.name for each in about.schema]
        if len(set(kinds)) != len(kinds):
            raise Broken(f"the kinds {kinds} repeat", "give each kind once", column=column.name)
        for kind in about.schema:
            about.getter(kind.name, kind.type)()
            wrong = t.text if kind.type != t.text else t.int64
            if not refused(partial(about.getter, kind.name, wrong)):
                raise Broken(
                    f"annotation {kind.name!r} has type {kind.type} and can be read as {wrong}",
                    "refuse every type but the declared one",
                    column=column.name,
                )


@holds("view", "K2.unknown", "view:C19", "view:C20")
def unknown(subject: ViewSubject) -> None:
    """An unknown annotation raises, or gives None with get."""
    for column in subject.view.schema:
        if not refused(partial(column.annotations.__getitem__, _NONSENSE)):
            raise Broken(
                "an unknown kind of annotation has a value", "raise for unknown kinds", column=column.name
            )
        if column.annotations.get(_NONSENSE) is not None:
            raise Broken(
                "get() has a value for an unknown kind of annotation", "return None", column=column.name
            )


@holds("view", "K2.repeatable", "view:C24")
def repeatable(subject: ViewSubject) -> None:
    """Annotations are the same each time."""
    for column in subject.view.schema:
        for kind in column.annotations:
            if token(column.annotations[kind]) != token(column.annotations[kind]):
                raise Broken(f"annotation {kind!r} changes", "compute it once", column=column.name)
