"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


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


class kept_property(Generic[T]):  # noqa: N801 (it is used as `property` is)
    """A property that is computed once, as `functools.cached_property` is from Python 3.12 on.

    Before that all instances of a class share one lock while it is computed: whoever reads from a store there
    makes all others wait. Two threads may compute it at once, which is as well.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> kept_property[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object, owner: type) -> kept_property[T] | T:
        if instance is None:
            return self
        kept = instance.__dict__
        if self._name not in kept:
            kept[self._name] = self._compute(instance)
        found: T = kept[self._name]
        return found
