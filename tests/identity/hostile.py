"""Reading what nobody vouches for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trueline.errors import InputError

T = TypeVar("T")


def attempt(read: Callable[[str], T], text: str) -> T | InputError:
    """Return what was read, or the refusal; any other error is a failure of the test."""
    try:
        return read(text)
    except InputError as error:
        return error
