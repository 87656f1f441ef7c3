"""What a step does, as a short text: another one where its code has changed.

Code, constants, defaults, plain values it closes over and plain attributes are
looked at. What it calls elsewhere is not: a step whose work depends on that
says so by another `version`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from trueline.errors import InputError
from trueline.run.json_values import digest_of, text_of
from trueline.run.step import Step


def fingerprint(step: Step, index: int) -> str:
    """Return a digest of what a step is: another one for another step, and after a change.

    >>> one, two = Step(map=lambda key, value: value + 1), Step(map=lambda key, value: value + 2)
    >>> fingerprint(one, 0) == fingerprint(two, 0)
    False
    """
    about = [str(index), step.name, step.kind, str(getattr(step, "version", ""))]
    return digest_of(*about, *_of_class(type(step)), *_of_attributes(step))


def names_in(step: Step) -> list[str]:
    """Return the classes that a fingerprint holds by module and name: renaming one makes another step.

    >>> names_in(Step(map=lambda key, value: value))
    ['trueline.run.step.Step']
    """
    parts = (*_of_class(type(step)), *_of_attributes(step))
    return list(dict.fromkeys(str(each) for each in parts if isinstance(each, _ClassName)))


class _ClassName(str):
    """A part of a fingerprint that is the name of a class."""

    __slots__ = ()

    @classmethod
    def of(cls, kind: type) -> _ClassName:
        return cls(f"{kind.__module__}.{kind.__qualname__}")


def _of_class(kind: type) -> Iterator[str]:
    yield _ClassName.of(kind)
    for each in kind.__mro__:
        if each in (Step, object):
            continue
        for name, value in sorted(vars(each).items()):
            if not name.startswith("__"):
                yield name
                yield from _of(value)


def _of_attributes(step: Step) -> Iterator[str]:
    for name, value in sorted(vars(step).items()):
        yield name
        yield from _of(value)


def _of(value: Any) -> Iterator[str]:
    match value:
        case FunctionType():
            yield from _of_code(value.__code__)
            for default in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).items()):
                yield from _of(default)
            for cell in value.__closure__ or ():
                inner = _content(cell)
                yield from _of(inner) if inner is not value else ()
        case MethodType():
            yield from _of(value.__func__)
        case staticmethod() | classmethod():
            yield from _of(value.__func__)
        case partial():
            yield from _of(value.func)
            yield from _plain((value.args, value.keywords))
        case _:
            yield from _plain(value)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _of_code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
        else:
            yield from _plain(constant)


def _plain(value: Any) -> Iterator[str]:
    try:
        yield text_of(value)
    except (InputError, RecursionError):
        yield _ClassName.of(type(value))
