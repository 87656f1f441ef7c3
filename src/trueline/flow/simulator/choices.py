"""One execution is a line of small numbers: who picks them, and how the next line follows from the last.

0 is always the eager choice (everything released, the newest version, the first tick that is ready), so a
line of zeros is the benign schedule and each other number is one deviation from it. A choice among one is
none and is not written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from trueline.errors import SimulationError


class Picker(Protocol):
    """Decides at every point where a flow may go on in more than one way."""

    values: list[int]
    """What was picked so far, the choices among one left out."""

    arities: list[int]
    """Among how many each was picked."""

    @property
    def fresh(self) -> bool:
        """Whether the next choice is past what was prescribed."""

    def pick(self, arity: int, what: object = None) -> int:
        """Return a number below `arity`."""


class Walk:
    """Depth first through all lines: `pick` follows the current one, `advance` makes the next.

    >>> walk = Walk()
    >>> found = []
    >>> while True:
    ...     found.append([walk.pick(2), walk.pick(2)])
    ...     if not walk.advance():
    ...         break
    >>> found
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """

    def __init__(self) -> None:
        self.values: list[int] = []
        self.arities: list[int] = []
        self.position = 0

    @property
    def fresh(self) -> bool:
        return self.position >= len(self.values)

    def pick(self, arity: int, what: object = None) -> int:
        if arity == 1:
            return 0
        position = self.position
        self.position = position + 1
        if position == len(self.values):
            self.values.append(0)
            self.arities.append(arity)
            return 0
        if self.arities[position] != arity:
            raise not_repeatable(position, self.arities[position], arity)
        return self.values[position]

    def advance(self) -> bool:
        """Go to the next line that was not walked; False where there is none."""
        values, arities = self.values, self.arities
        while values:
            if values[-1] + 1 < arities[-1]:
                values[-1] += 1
                self.position = 0
                return True
            values.pop()
            arities.pop()
        return False


class Follow:
    """Follow a prescribed line, then pick eagerly.

    With `lenient` a number that is too large counts as 0: what came before it was changed, and it means
    something else now. `expected` says among how many each was picked before, where that is known.
    """

    def __init__(self, line: Sequence[int], expected: Sequence[int] = (), *, lenient: bool = False) -> None:
        self.line = tuple(line)
        self.expected = expected
        self.lenient = lenient
        self.values: list[int] = []
        self.arities: list[int] = []

    @property
    def fresh(self) -> bool:
        return len(self.values) >= len(self.line)

    def pick(self, arity: int, what: object = None) -> int:
        if arity == 1:
            return 0
        position = len(self.values)
        value = self.line[position] if position < len(self.line) else 0
        if position < len(self.expected) and self.expected[position] != arity:
            raise not_repeatable(position, self.expected[position], arity)
        if not 0 <= value < arity:
            if not self.lenient:
                raise SimulationError(
                    f"choice {position + 1} of the line is {value}, but there are only {arity} ways to go on",
                    remedy="simulate it again: the flow or the test has changed since the line was printed",
                    code="LineDoesNotFit",
                    position=position,
                    arity=arity,
                )
            value = 0
        self.values.append(value)
        self.arities.append(arity)
        return value


class Draw:
    """Ask another source for every number: a random source, or Hypothesis."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self._draw = draw
        self.values: list[int] = []
        self.arities: list[int] = []

    @property
    def fresh(self) -> bool:
        return True

    def pick(self, arity: int, what: object = None) -> int:
        if arity == 1:
            return 0
        value = self._draw(arity)
        self.values.append(value)
        self.arities.append(arity)
        return value


def not_repeatable(position: int, before: int, now: int) -> SimulationError:
    """Say that the same choices led somewhere else this time."""
    return SimulationError(
        f"choice {position + 1} had {before} ways to go on the first time and has {now} now: the same "
        "choices did not lead to the same state",
        remedy="the test body and the functions of the flow must depend on their arguments only: no clock, "
        "no random numbers, no state outside, no changing of a value that was handed in",
        code="NotRepeatable",
        position=position,
    )


def trimmed(line: Iterable[int]) -> tuple[int, ...]:
    """Leave out the zeros at the end: they are picked anyway.

    >>> trimmed([0, 1, 0, 0])
    (0, 1)
    """
    values = list(line)
    while values and values[-1] == 0:
        values.pop()
    return tuple(values)


def written(line: Iterable[int]) -> str:
    """Write a line down.

    >>> written((0, 0, 12))
    '0 0 12'
    """
    return " ".join(map(str, line))


def parsed(line: str | Iterable[int]) -> tuple[int, ...]:
    """Read a line that was written down.

    >>> parsed("0 1"), parsed([2])
    ((0, 1), (2,))
    """
    try:
        parts = line.replace(",", " ").split() if isinstance(line, str) else list(line)
        values = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        values = (-1,)
    if any(value < 0 for value in values):
        raise SimulationError(
            f"{line!r} is not a line of choices",
            remedy="copy the line that the counterexample printed, such as '0 0 1'",
            code="LineDoesNotFit",
        )
    return values


def deviations(line: Iterable[int]) -> int:
    """Count the choices that are not the eager one."""
    return sum(value != 0 for value in line)


Line = tuple[int, ...]


def children(line: Sequence[int], arities: Sequence[int], last: int) -> Iterator[tuple[Line, Line]]:
    """Give every line with one more deviation than this one, made after its last; each line has one parent.

    With each go the numbers of ways it was picked from.

    >>> list(children([0, 1, 0], [2, 2, 3], last=1))
    [((0, 1, 1), (2, 2, 3)), ((0, 1, 2), (2, 2, 3))]
    """
    for position in range(last + 1, len(line)):
        ways = tuple(arities[: position + 1])
        for value in range(1, arities[position]):
            yield (*line[:position], value), ways
