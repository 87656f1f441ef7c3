"""What is promised about a collection: complete or growing, ordered or not, delivered once or more often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeVar

from trueline.errors import InputError


class Unbounded:
    """It may grow or change; only a chosen prefix or version of it can be read whole."""


class Bounded(Unbounded):
    """It is complete now, and can be read whole."""


class Unordered:
    """No order of its elements is promised."""


class Ordered(Unordered):
    """Its elements come in one order, the same for every reader."""


class AtLeastOnce:
    """An element may be delivered again; none is lost."""


class ExactlyOnce(AtLeastOnce):
    """Every element is delivered once."""


T = TypeVar("T")
B_co = TypeVar("B_co", bound=Unbounded, covariant=True)
O_co = TypeVar("O_co", bound=Unordered, covariant=True)
R_co = TypeVar("R_co", bound=AtLeastOnce, covariant=True)

Shape = Literal["stream", "keyed stream", "singleton", "optional", "keyed singleton"]


class Missing(Enum):
    """Two ways of not being there."""

    ABSENT = "absent"
    """An optional without a value, a key without one: a version like any other."""
    NOTHING = "nothing"
    """No version was ever made."""

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = Missing.ABSENT
NOTHING: Final = Missing.NOTHING


@dataclass(frozen=True)
class NonDet:
    """A reason why a choice left to chance does no harm; made by `nondet`.

    >>> from trueline.flow import nondet
    >>> nondet("any recent count") == NonDet("any recent count")
    True
    """

    why: str


def nondet(why: str) -> NonDet:
    """Say why a choice that timing makes does no harm.

    Every operator whose result depends on timing asks for it, so all of them can be found and read.

    >>> nondet("any recent count will do").why
    'any recent count will do'
    """
    given: object = why
    if not isinstance(given, str) or not given.strip():
        raise InputError(
            f"nondet({why!r}) gives no reason",
            remedy="say in a sentence why any choice is right here, or what makes the result the same again",
        )
    return NonDet(why.strip())
