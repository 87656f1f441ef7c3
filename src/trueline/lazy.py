"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazily(
    package: str, names: Mapping[str, str], modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose public names are in other modules.

    `names` says which module has each name; `modules` are modules of the
    package that are public themselves.

    >>> get, _ = lazily("trueline.lazy", {"sqrt": "math"})
    >>> get("sqrt")(9)
    3.0
    """
    inside = frozenset(modules)

    def load(name: str) -> Any:
        if name in inside:
            return import_module(f"{package}.{name}")
        module = names.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return load, listed
