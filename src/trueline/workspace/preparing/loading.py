"""Steps by name: what `--step module:name` means."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from trueline.errors import InputError
from trueline.run import Step
from trueline.workspace.preparing.parsing import Parse, parse

__all__ = ["Step", "load_steps"]


def load_steps(names: Sequence[str], on_error: str = "fail_run") -> list[Step]:
    """Return the steps that names stand for; `on_error` is what happens to a file that cannot be parsed.

    A name is that of a step, a class of steps, a list of them, or a function
    of a file's path and its table.

    >>> [step.name for step in load_steps(["trueline.workspace.preparing:parse"])]
    ['parse']
    """
    if on_error not in ("fail_run", "skip_key"):
        raise InputError(f"on_error={on_error!r}", remedy="give fail_run or skip_key")
    steps = [step for name in names for step in _steps(name, _loaded(name))]
    if on_error == "skip_key":
        first = steps.pop(0) if steps and isinstance(steps[0], Parse) else parse()
        assert isinstance(first, Parse)
        steps.insert(0, parse(first.reader, max_bad=first.max_bad, on_error="skip_key"))
    return steps


def _loaded(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise InputError(f"{name!r} names no step", remedy="write module:name", code="NoSuchStep")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"there is no step {name}: {error}",
            remedy="is the module in this folder, or installed?",
            code="NoSuchStep",
        ) from None
    finally:
        sys.path.remove(here)
    return found


def _steps(name: str, found: Any) -> Iterator[Step]:
    if isinstance(found, Step):
        yield found
    elif isinstance(found, type) and issubclass(found, Step):
        yield found()
    elif isinstance(found, list | tuple):
        for each in found:
            yield from _steps(name, each)
    elif found is parse:
        yield parse()
    elif callable(found):
        yield Step(map=found, name=getattr(found, "__name__", name))
    else:
        raise InputError(
            f"{name} is a {type(found).__name__}, no step",
            remedy="name a Step, a list of steps, or a function of a path and a table",
            code="NoSuchStep",
        )
