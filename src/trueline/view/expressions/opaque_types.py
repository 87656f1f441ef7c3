"""What must not be reckoned with though it is stored as a number: categories and row ids (view:C14).

Arrow's types do not tell them from numbers and bytes. Here an expression is
looked through once, when it is bound to columns: they can be compared for
equality with their own kind, looked for in lists, chosen among, and cast.
"""

from __future__ import annotations

from trueline import types as t
from trueline.errors import SchemaError
from trueline.view.expressions import tree

_CHOOSING = frozenset({"coalesce", "nullif", "array"})
_ASKING = frozenset({"isnull", "isnotnull", "size"})


def kind_of(node: tree.Expr) -> t.Type | None:
    """Return the type of an expression that Arrow's types do not tell, None for all others."""
    match node:
        case tree.Name(_, kind) | tree.Cast(_, kind):
            return kind if kind is not None and kind.is_told else None
        case tree.Case(_, values):
            return _one(values)
        case tree.Call("array", arguments):
            item = _one(arguments)
            return None if item is None else t.vector(item, len(arguments))
        case tree.Call("item" | "element_at", (of, *_)):
            vector = kind_of(of)
            item = vector.item if isinstance(vector, t.Vector) else None
            return item if item is not None and item.is_told else None
        case tree.Call("coalesce", arguments):
            return _one(arguments)
        case tree.Call("nullif", (one, *_)):
            return kind_of(one)
    return None


def _one(nodes: tuple[tree.Expr, ...]) -> t.Type | None:
    return next((kind for kind in map(kind_of, nodes) if kind is not None), None)


def check(node: tree.Expr) -> None:
    """Refuse what would take a category or a row id for the number or the bytes it is stored as."""
    for part in tree.parts(node):
        check(part)
    marked = [kind for kind in map(kind_of, tree.parts(node)) if kind is not None]
    if not marked:
        return
    match node:
        case tree.IsNull() | tree.Cast():
            return
        case tree.Compare("=" | "<>", left, right) | tree.Distinct(left, right, _):
            _alike((left, right))
        case tree.In(of, values):
            _alike((of, *values))
        case tree.Case(_, values):
            _alike(values)
        case tree.Call(name, arguments) if name in _CHOOSING:
            _alike(arguments)
        case tree.Call(name, _) if name in _ASKING:
            return
        case tree.Call("item" | "element_at", (_, place)) if kind_of(place) is None:
            return
        case _ if all(isinstance(kind, t.Vector) and not kind.item.is_told for kind in marked):
            return  # of several dimensions: stored as what it is
        case _:
            raise _refused(marked[0])


def _alike(nodes: tuple[tree.Expr, ...]) -> None:
    kinds = {kind_of(node) for node in nodes if not _is_nothing(node)}
    if len(kinds) > 1:
        marked = next(kind for kind in kinds if kind is not None)
        raise _refused(marked)


def _is_nothing(node: tree.Expr) -> bool:
    return isinstance(node, tree.Value) and not node.scalar.is_valid


def _refused(kind: t.Type) -> SchemaError:
    meant = "int64" if isinstance(kind, t.Category) else "text"
    return SchemaError(
        f"{kind} is neither the number nor the bytes it is stored as",
        remedy=f"if that is meant, say so: cast(x as {meant})",
        code="TypeMismatch",
    )
