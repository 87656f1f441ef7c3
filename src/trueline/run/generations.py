"""Generation tuples: which revision of each step a value was made from; the greater one is the newer.

A tuple has a number for each step. Values that came in have zeros; a step
that changes a value sets its own number to the generation of its batch, and
leaves zeros to its right (run:F1). Tuples compare as Python compares them.
"""

from __future__ import annotations

from typing import TypeAlias

Generations: TypeAlias = tuple[int, ...]


def initial(steps: int) -> Generations:
    """Return what values have that came in (run:F2).

    >>> initial(2)
    (0, 0)
    """
    return (0,) * steps


def stamped(gens: Generations, index: int, generation: int) -> Generations:
    """Return what a value has that step `index` made from one with `gens`, in its batch `generation`.

    >>> stamped((0, 0), 0, 5), stamped((5, 0), 1, 2)
    ((5, 0), (5, 2))
    """
    return (*gens[:index], generation, *(0,) * (len(gens) - index - 1))
