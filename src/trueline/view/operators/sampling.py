"""Some of the rows, chosen by a hash of their ids or of key columns.

Which rows are chosen does not depend on the others, nor on how they are read: a row stays where it is when
rows are added. Ids and order do not change; a row that is drawn several times has the ids
`id.combine(RowId(k))`, k from 0 on (view:C77, rule 5). Rows come in the pieces of the input.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from trueline.errors import InputError
from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk
from trueline.kernel.pieces import Piece, of_each
from trueline.kernel.value_hash import Salt, Words, hash_ids, hash_values
from trueline.view.operators.shuffling import whole_seed
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Schema, key_columns

_ALL: Final = 1 << 64
_NEAR: Final = Fraction(1, 10**9)
# Poisson: more than this many of each row on average is a mistake.
_MOST: Final = 1_000


@dataclass(frozen=True)
class Choice:
    """Chosen is what has a hash from `low` up to `high` (not included), or with `outside` all else.

    With `draws` a row comes k times if k of these limits are not above its hash.
    """

    salt: Salt
    low: int = 0
    high: int = _ALL
    outside: bool = False
    draws: tuple[int, ...] | None = None

    @property
    def is_none(self) -> bool:
        """Whether no row can be chosen."""
        return self.draws is None and not self.outside and self.low >= self.high

    @property
    def is_all(self) -> bool:
        """Whether every row is chosen, once."""
        return self.draws is None and not self.outside and (self.low, self.high) == (0, _ALL)

    def times(self, hashes: Words) -> npt.NDArray[np.int64]:
        """Say how often each row comes."""
        if self.draws is not None:
            return np.searchsorted(np.array(self.draws, np.uint64), hashes, side="right")
        inside = hashes >= np.uint64(self.low) if self.low < _ALL else np.zeros(len(hashes), bool)
        if self.high < _ALL:
            inside &= hashes < np.uint64(self.high)
        return (inside ^ self.outside).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Chosen(Node):
    """The rows that are chosen by a hash of their ids, or of the columns `by`."""

    below: Node
    choice: Choice
    by: tuple[int, ...]
    says: str

    @property
    def title(self) -> str:
        return self.says

    @property
    def schema(self) -> Schema:
        """That of the input (view:C10)."""
        return self.below.schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.below,)

    @property
    def row_count(self) -> int | None:
        """Known where all or none are chosen (view:C31)."""
        if self.choice.is_none:
            return 0
        return self.below.row_count if self.choice.is_all else None

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted, and what the hash is of."""
        columns = tuple(dict.fromkeys((*want.columns, *self.by)))
        return (want.of(columns, ids=want.ids or not self.by).within(want.bounds),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """Every column is the input's."""
        return 0, column

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return those of the input."""
        if self.choice.is_none:
            return []
        (below,) = self.wants(want)
        at = tuple(below.columns.index(place) for place in self.by)
        made = partial(ChosenPiece, choice=self.choice, at=at, keep=len(want.columns), ids=want.ids)
        return of_each(self.below.pieces(below), made)


@dataclass(frozen=True, eq=False)
class ChosenPiece:
    """A piece of the input, of which some rows are chosen; `at` is where the key columns are."""

    below: Piece
    choice: Choice
    at: tuple[int, ...]
    keep: int
    ids: bool

    @property
    def rows(self) -> int | None:
        """Only the end will tell."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows that are chosen."""
        for chunk in self.below.chunks():
            if self.at:
                keys = [chunk.arrays[place] for place in self.at]
                hashes = hash_values(keys, chunk.rows, self.choice.salt)
            else:
                assert chunk.ids is not None
                hashes = hash_ids(chunk.ids, self.choice.salt)
            times = self.choice.times(hashes)
            kept = chunk.select(range(self.keep), ids=self.ids)
            found = kept.filter(times > 0) if self.choice.draws is None else _repeated(kept, times)
            if found.rows:
                yield found


def _repeated(chunk: Chunk, times: npt.NDArray[np.int64]) -> Chunk:
    source = np.repeat(np.arange(chunk.rows), times)
    found = chunk.take(source)
    if found.ids is None:
        return found
    number = np.arange(len(source)) - np.repeat(np.cumsum(times) - times, times)
    drawn = RowIds(number.astype(np.uint64), np.zeros(len(source), np.uint64))
    return Chunk(found.rows, found.arrays, found.ids.combine(drawn))


# --- making them ----------------------------------------------------------------------------


def _salt(below: Node, purpose: str, seed: object) -> Salt:
    """Return the salt of a choice; a choice among what was chosen is drawn from other hashes."""
    return Salt.of(f"{purpose}/{_depth(below)}", whole_seed(seed))


def _depth(node: Node) -> int:
    """Return how many choices, one made from another, lead to a node."""
    known: dict[int, int] = {}
    waiting = [node]
    while waiting:
        last = waiting[-1]
        below = [known.get(id(each)) for each in last.inputs]
        if None in below:
            waiting += [each for each in last.inputs if id(each) not in known]
            continue
        known[id(last)] = max((each or 0 for each in below), default=0) + isinstance(last, Chosen)
        waiting.pop()
    return known[id(node)]


def sampled(below: Node, fraction: float, seed: int, *, replace: bool) -> Chosen:
    """Keep each row with a probability, or draw it that many times on average."""
    most = _MOST if replace else 1
    share = _fraction(fraction)
    if not 0 <= share <= most:
        raise InputError(
            f"a sample of {fraction!r}",
            remedy=f"give a fraction from 0 to {most}"
            + ("" if replace else "; with replace=True rows may come several times"),
        )
    says = f"a sample of {float(share):g}, seed {seed}"
    if replace:
        choice = Choice(_salt(below, "draw", seed), draws=_poisson(share))
        return Chosen(below, choice, (), f"{says}, with replacement")
    return Chosen(below, Choice(_salt(below, "sample", seed), high=_limit(share)), (), says)


def _fraction(given: object) -> Fraction:
    if isinstance(given, bool) or not isinstance(given, int | float | Fraction | decimal.Decimal):
        raise InputError(f"{given!r} is no fraction", remedy="give a number from 0 to 1")
    try:
        return Fraction(given)
    except (ValueError, OverflowError):
        raise InputError(f"{given!r} is no fraction", remedy="give a number from 0 to 1") from None


def _limit(share: Fraction) -> int:
    """Return the hash that so large a share of all hashes is below."""
    return round(share * _ALL)


def _poisson(mean: Fraction) -> tuple[int, ...]:
    """Return for k = 0, 1, … the hash from which on a row comes more than k times.

    Reckoned in decimals, so that every machine draws the same.
    """
    with decimal.localcontext(decimal.Context(prec=60, Emin=-decimal.MAX_EMAX, Emax=decimal.MAX_EMAX)):
        share = decimal.Decimal(mean.numerator) / decimal.Decimal(mean.denominator)
        term = total = (-share).exp()
        limits = []
        while (limit := int(total * _ALL)) < _ALL - 1:
            limits.append(limit)
            term = term * share / len(limits)
            total += term
            if len(limits) > mean and term * _ALL < 1:
                break
    return tuple(limits)


def split(
    view: Any, fractions: Sequence[float] | Mapping[str, float], seed: int, by: str | Sequence[str] | None
) -> Any:
    """Divide a view into parts: by a hash of the ids, or of key columns."""
    named = fractions if isinstance(fractions, Mapping) else None
    given = list(named.values()) if named is not None else list(fractions)
    shares: list[Fraction] = [_fraction(each) for each in given]
    if not shares or any(share < 0 for share in shares) or abs(sum(shares, Fraction(0)) - 1) > _NEAR:
        raise InputError(
            f"a split into {given!r}", remedy="give fractions from 0 on that add up to 1, as in (0.8, 0.2)"
        )
    limits = [0, *(min(_ALL, _limit(share)) for share in accumulate(shares[:-1])), _ALL]
    below, keys = view.node, _keys(view.node, by)
    salt = _salt(below, "split", seed)
    names = list(named) if named is not None else [str(number) for number in range(len(shares))]
    parts = [
        view.made_of(Chosen(below, Choice(salt, low, high), keys, _says(f"part {name}", below, keys, seed)))
        for name, (low, high) in zip(names, pairwise(limits), strict=True)
    ]
    return dict(zip(names, parts, strict=True)) if named is not None else tuple(parts)


def folds(view: Any, k: object, seed: int, by: str | Sequence[str] | None) -> list[tuple[Any, Any]]:
    """Return k pairs (training, test)."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 2:
        raise InputError(f"folds({k!r})", remedy="give a whole number from 2 on")
    below, keys = view.node, _keys(view.node, by)
    salt = _salt(below, "folds", seed)
    found = []
    for number in range(k):
        low, high = number * _ALL // k, (number + 1) * _ALL // k
        says = _says(f"fold {number + 1} of {k}", below, keys, seed)
        test = Chosen(below, Choice(salt, low, high), keys, says)
        train = Chosen(below, Choice(salt, low, high, outside=True), keys, f"all but {says}")
        found.append((view.made_of(train), view.made_of(test)))
    return found


def _keys(below: Node, by: str | Sequence[str] | None) -> tuple[int, ...]:
    names = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    return tuple(column.index for column in key_columns(below.schema, names, "a split"))


def _says(what: str, below: Node, keys: Sequence[int], seed: int) -> str:
    names = ", ".join(below.schema[place].name for place in keys)
    return f"{what} by {names or 'row id'}, seed {seed}"
