"""The public objects: their insides are private, and what their methods return has a type."""

from __future__ import annotations

import builtins
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trueline as tl

MODULES = (
    "trueline",
    "trueline.chain",
    "trueline.console",
    "trueline.flow",
    "trueline.identity",
    "trueline.merge",
    "trueline.readers",
    "trueline.run",
    "trueline.testing",
    "trueline.types",
    "trueline.view",
    "trueline.workspace",
    "trueline.workspace.preparing",
)

_CELL = "a getter returns the value of a cell, whose type the caller names"
_FRAME = "the class is another library's, which is not needed to use the others"
_STEP = "keys and values are what the steps of the user make of them"
_FLOW = "elements are what the functions of the user make of them"
# What may return `Any`, and why; one that no longer does is to leave the list.
EXCEPTIONS = {
    "Commit.wait": "a snapshot, which the room of commits does not know",
    "View.to_polars": _FRAME,
    "View.to_spark": _FRAME,
    "Cursor.getter": _CELL,
    "SimpleCursor.getter": _CELL,
    "RowIds.argsort": "numpy writes an array of any shape this way",
    "Journal.value": _STEP,
    "Journal.writes": _STEP,
    "Run.close": _STEP,
    "Run.execute": _STEP,
    "Step.digest": _STEP,
    "Step.flat_map": _STEP,
    "Step.map": _STEP,
    "Step.process": _STEP,
    "Cluster.forward_ref": _FLOW,
    "Cluster.source": _FLOW,
    "Flow.run": _FLOW,
    "Machine.cuts": _FLOW,
    "Machine.kept": _FLOW,
    "Machine.key": _FLOW,
    "Machine.outputs": _FLOW,
    "Machine.peek": _FLOW,
    "Machine.snapshot": _FLOW,
    "Machine.take": _FLOW,
    "Machine.take_one": _FLOW,
    "Simulation.collect": _FLOW,
    "Simulation.next": _FLOW,
    "Simulation.try_next": _FLOW,
    "Singleton.zip": _FLOW,
    "Slice.batch": _FLOW,
    "Slice.snapshot": _FLOW,
    "Tick.cycle": _FLOW,
    "Tick.forward_ref": _FLOW,
    "Tick.optional_state": _FLOW,
    "SimpleView.numbered": "rows of a view of the user's own",
    "SimpleView.rows": "rows of a view of the user's own",
}

WORKSPACE = {
    *("clock", "clone", "close", "config", "create", "create_from_manifest", "datasets", "delete", "gc"),
    *("derive", "derive_folder", "lineage", "location", "plan", "snapshot"),
    *("pull", "sql", "tag", "tags", "transaction", "trusted_sql", "untag", "verify"),
}
DATASET = {
    *("accept_head", "append", "blocks", "chain", "changes", "columns", "commit", "confirm_source", "diff"),
    *(
        "compact",
        "drop_data",
        "export",
        "get",
        "head",
        "health",
        "hide_column",
        "id",
        "info",
        "inputs",
        "kind",
        "log",
        "name",
        "origin",
    ),
    *(
        "push",
        "rename",
        "reset",
        "restore_head",
        "revert",
        "schema",
        "show_column",
        "stored_columns",
        "system_schema",
        "verify",
        "view",
        "workspace",
    ),
}


def test_a_workspace_and_a_dataset_show_what_people_use_and_no_more(ws):
    assert {name for name in dir(ws) if not name.startswith("_")} == WORKSPACE
    assert {name for name in dir(ws.create("sales")) if not name.startswith("_")} == DATASET


class Foreign(type):
    """A class that a module imports for types only: it stands for itself, with its arguments."""

    def __getattr__(cls, name: str) -> Foreign:
        if name.startswith("_"):
            raise AttributeError(name)
        return Foreign(name, (), {})

    def __getitem__(cls, item: object) -> types.GenericAlias:
        return types.GenericAlias(tuple, item)


def returned(function: Callable[..., object]) -> object:
    """What a function is said to return, its aliases looked through."""
    try:
        return typing.get_type_hints(function)["return"]
    except (NameError, TypeError):  # a name, or an alias in quotes, that is there for types only
        return evaluated(
            function.__annotations__["return"], vars(builtins) | inspect.unwrap(function).__globals__
        )


def evaluated(text: str, known: dict[str, Any]) -> object:
    code = compile(text, "annotation", "eval")
    names = {name: known.get(name) or Foreign(name, (), {}) for name in code.co_names}
    aliases = {name: evaluated(value, known) for name, value in names.items() if isinstance(value, str)}
    return eval(code, names | aliases)


def has_any(hint: object) -> bool:
    return hint is Any or any(has_any(argument) for argument in typing.get_args(hint))


def public() -> Iterator[tuple[str, Callable[..., object]]]:
    """The public functions and methods of ours, each once."""
    seen = set()
    for module in map(importlib.import_module, MODULES):
        for name in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
            for shown, function in parts(name, getattr(module, name)):
                if function.__module__.startswith("trueline") and function not in seen:
                    seen.add(function)
                    yield shown, function


def parts(name: str, value: object) -> Iterator[tuple[str, Any]]:
    if inspect.isfunction(value):
        yield name, value
    if inspect.isclass(value):
        for member in dir(value):
            found = inspect.getattr_static(value, member)
            found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
            if not member.startswith("_") and inspect.isfunction(found):
                yield f"{value.__name__}.{member}", found


def test_no_public_method_returns_any():
    untyped = {name for name, function in public() if has_any(returned(function))}
    assert untyped == set(EXCEPTIONS)


def test_the_look_goes_through_aliases_and_names_for_types_only():
    def hidden() -> dict[str, Plain]: ...  # noqa: F821

    def clear() -> dict[str, Unknown]: ...  # noqa: F821

    hidden.__globals__["Plain"] = list[Any]
    try:
        assert has_any(returned(hidden))
        assert not has_any(returned(clear))
        clear.__annotations__["return"] = "Unknown[Any] | None"
        assert has_any(returned(clear))
    finally:
        del hidden.__globals__["Plain"]


@pytest.mark.parametrize("name", sorted(tl.__all__))
def test_every_public_function_says_what_it_returns(name):
    for shown, function in parts(name, getattr(tl, name)):
        assert "return" in function.__annotations__ or not function.__module__.startswith("trueline"), shown
