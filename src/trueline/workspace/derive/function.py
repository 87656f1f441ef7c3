"""Datasets that a function computes: found by import path, recorded with the text of its module, and allowed.

A definition names code. What a dataset records never runs by itself: the module that runs is the one that
Python finds here, its text must be the one that was recorded, and whoever uses the workspace must have named
the function himself, by `derive` or by confirming it. What was confirmed is kept in the user's own file.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trueline.dataset.derivation import Derivation, FunctionOf, derivation_at
from trueline.errors import ConfigError, InputError, StoreError
from trueline.workspace.user_config import FUNCTION

if TYPE_CHECKING:
    from trueline.identity.dataset_id import DatasetId
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.derive.evaluate import QuerySession
    from trueline.workspace.workspace import Workspace

# A module larger than this is data.
_LONGEST: Final = 1 << 20
# What this process has named, for users without a file of their own.
_named_here: set[tuple[str, str]] = set()


def function_of(given: object) -> FunctionOf:
    """Return a function that can be found again: by `module:function`, or one of a module that was imported.

    >>> function_of("statistics:mean").path
    'statistics:mean'
    >>> function_of(lambda rows: rows)
    Traceback (most recent call last):
    trueline.errors.InputError: the function <lambda> of trueline.workspace.derive.function has no import path
      → put it at the top of a module that Python can import, and name it as "module:function"
    """
    path = given if isinstance(given, str) else _path(given)
    module, _, name = path.partition(":")
    if not all(map(str.isidentifier, module.split("."))) or not name.isidentifier():
        raise InputError(
            f"{path!r:.120} does not name a function",
            remedy='name it as "module:function"',
            code="BadFunction",
        )
    function = FunctionOf(path, _source(path))
    _found(function)
    return function


def _path(given: object) -> str:
    if not callable(given):
        raise InputError(
            f"{given!r:.80} is not a function",
            remedy='give a function, or name it as "module:function"',
            code="BadFunction",
        )
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", "")
    if module in (None, "__main__") or not str(name).isidentifier():
        raise InputError(
            f"the function {name or repr(given):.80} of {module} has no import path",
            remedy='put it at the top of a module that Python can import, and name it as "module:function"',
            code="BadFunction",
        )
    return f"{module}:{name}"


def _source(path: str) -> str:
    """Read the text of a module without running it again."""
    module = path.partition(":")[0]
    try:
        found = importlib.import_module(module)
        file = inspect.getsourcefile(found)
        raw = Path(file or "").read_bytes()
        text = raw.decode()
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise InputError(
            f"the module {module} of {path!r} cannot be read: {error}",
            remedy="install it, or add its folder to PYTHONPATH",
            code="FunctionMissing",
            path=path,
        ) from None
    if len(raw) > _LONGEST:
        raise InputError(
            f"the module {module} has {len(raw):,} bytes",
            remedy="put the function into a module of its own",
            code="BadFunction",
        )
    return text


def _found(function: FunctionOf) -> Callable[..., Any]:
    """Return the function as Python finds it now."""
    module, _, name = function.path.partition(":")
    found = getattr(importlib.import_module(module), name, None)
    if not callable(found):
        raise InputError(
            f"the module {module} has no function {name!r}",
            remedy="check its name, or derive the dataset from another function",
            code="FunctionMissing",
            path=function.path,
        )
    return found  # type: ignore[no-any-return]


# --- who may run what -----------------------------------------------------------------------------


def allow(workspace: Workspace, dataset_id: DatasetId, function: FunctionOf) -> None:
    """Record that this user has named a function for a dataset: just this text of its module."""
    _named_here.add((str(dataset_id), function.digest))
    try:
        workspace.config.user.trust(workspace.location, _about(dataset_id), _value(function))
    except (ConfigError, StoreError):
        return  # a user without a file of his own says it in every process


def confirm_function(dataset: Dataset) -> str | None:
    """Let the function of a dataset be called here; returns its path, None if there is none."""
    derivation = derivation_at(dataset._tail)
    if derivation is None or derivation.function is None:
        return None
    allow(dataset.workspace, dataset.id, derivation.function)
    return derivation.function.path


def permitted(workspace: Workspace, dataset: Dataset, derivation: Derivation) -> FunctionOf | None:
    """Return the function of a definition, None if it has none; raise where nobody here has named it."""
    function = derivation.function
    if function is None:
        return None
    known = (str(dataset.id), function.digest) in _named_here
    user = workspace.config.user
    if not known and not user.is_trusted(workspace.location, _about(dataset.id), _value(function)):
        raise InputError(
            f"dataset {dataset.name!r} is computed by the function {function.path}, which nobody has"
            " confirmed here: it may have been named by somebody else",
            remedy=f"read it, and if it may run: ws[{dataset.name!r}].confirm_source()",
            code="FunctionNotConfirmed",
            name=dataset.name,
            path=function.path,
        )
    if _source(function.path) != function.source:
        raise InputError(
            f"the module of {function.path} has changed since {dataset.name!r} was defined",
            remedy='derive it again with on_change="rebuild", or bring the module back',
            code="OtherFunction",
            name=dataset.name,
            path=function.path,
        )
    return function


def _about(dataset_id: DatasetId) -> str:
    return f"{FUNCTION}{dataset_id}"


def _value(function: FunctionOf) -> str:
    return f"{function.path} {function.digest}"


# --- running --------------------------------------------------------------------------------------


def result_of_function(session: QuerySession, derivation: Derivation) -> Any:
    """Call the function of a definition over the tables of a session that may call it."""
    return _called(session, derivation, {name: session.session.table(f"`{name}`") for name in session.tables})


def _called(session: QuerySession, derivation: Derivation, frames: dict[str, Any]) -> Any:
    function = derivation.function
    assert function is not None
    if session.may_call != function:
        raise InputError(
            f"the function {function.path} is not called here: nobody has confirmed it",
            remedy="confirm it for the dataset that it computes",
            code="FunctionNotConfirmed",
            path=function.path,
        )
    call = _found(function)
    try:
        inspect.signature(call).bind(**frames)
    except TypeError as error:
        raise InputError(
            f"the function {function.path} cannot be called with {', '.join(frames)}: {error}",
            remedy="let it take one frame for each input, by the names that the inputs have",
            code="BadFunction",
            path=function.path,
        ) from None
    made = call(**frames)
    if not hasattr(made, "schema") or not hasattr(made, "columns") or not hasattr(made, "exceptAll"):
        raise InputError(
            f"the function {function.path} returns {type(made).__name__}",
            remedy="let it return a Spark frame",
            code="BadFunction",
            path=function.path,
        )
    return _in_one_form(made)


def _in_one_form(frame: Any) -> Any:
    """Return a result in which equal numbers have one form, as those of queries have (derive:V4)."""
    from trueline.spark.errors import translated
    from trueline.workspace.derive.judge import in_one_form

    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    with translated():
        return frame.selectExpr(*in_one_form(types))


def check_partitionings(session: QuerySession, derivation: Derivation) -> None:
    """Run a function over its inputs cut in two ways, and refuse it where the results differ (derive:V5).

    The first pull of a definition does it: a result that depends on how rows were cut cannot be proven.
    """
    from trueline.spark.canonical import differing_rows

    tables = {name: session.session.table(f"`{name}`") for name in session.tables}
    one, other = (
        _called(session, derivation, {name: frame.repartition(parts) for name, frame in tables.items()})
        for parts in (1, 5)
    )
    shown = differing_rows(one, other)
    if shown:
        assert derivation.function is not None
        key = {name: shown[0].get(name) for name in derivation.key}
        raise InputError(
            f"the function {derivation.function.path} gives other rows where its inputs are cut into other"
            f" partitions, for example those of {key}",
            remedy="order what it takes the first of, add decimals, not doubles, and use no clock or chance",
            code="NotReproducible",
            path=derivation.function.path,
            rows=shown,
        )
