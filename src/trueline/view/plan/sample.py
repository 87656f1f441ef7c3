"""Some of the rows, chosen by a hash of their ids or of key columns.

Which rows are chosen does not depend on the others, nor on how they are read: a row stays where it is when
rows are added. Ids and order do not change; a row that is drawn several times has the ids
`id.combine(RowId(k))`, k from 0 on (view:C77, rule 5).
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from trueline.errors import InputError
from trueline.kernel.value_hash import Salt, Words
from trueline.view.plan.node import IdRule, Node, OneInput, Want
from trueline.view.plan.shuffle import whole_seed
from trueline.view.schema import key_columns

_ALL: Final = 1 << 64
_NEAR: Final = Fraction(1, 10**9)
# Poisson: more than this many of each row on average is a mistake.
_MOST: Final = 1_000


@dataclass(frozen=True)
class HashChoice:
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
class Sample(OneInput):
    """The rows that are chosen by a hash of their ids, or of the columns `by`."""

    choice: HashChoice
    by: tuple[int, ...]
    says: str

    @property
    def title(self) -> str:
        return self.says

    @property
    def id_rule(self) -> IdRule:
        """A row that may be drawn several times says which time this is."""
        return IdRule.UNCHANGED if self.choice.draws is None else IdRule.DRAW

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """Known where all or none are chosen (view:C31)."""
        if self.choice.is_none:
            return 0
        return counts[0] if self.choice.is_all else None

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted, and what the hash is of."""
        columns = tuple(dict.fromkeys((*want.columns, *self.by)))
        return (want.of(columns, ids=want.ids or not self.by).within(want.bounds),)


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
        known[id(last)] = max((each or 0 for each in below), default=0) + isinstance(last, Sample)
        waiting.pop()
    return known[id(node)]


def sampled(below: Node, fraction: float, seed: int, *, replace: bool) -> Sample:
    """Keep each row with a probability, or draw it that many times on average."""
    most = _MOST if replace else 1
    share = _fraction(fraction)
    if not 0 <= share <= most:
        raise InputError(
            f"a sample of {fraction!r} is not a fraction of the rows",
            remedy=f"give a fraction from 0 to {most}"
            + ("" if replace else "; with replace=True rows may come several times"),
        )
    says = f"a sample of {float(share):g}, seed {seed}"
    if replace:
        choice = HashChoice(_salt(below, "draw", seed), draws=_poisson(share))
        return Sample(below, choice, (), f"{says}, with replacement")
    return Sample(below, HashChoice(_salt(below, "sample", seed), high=_limit(share)), (), says)


def _fraction(given: object) -> Fraction:
    if isinstance(given, bool) or not isinstance(given, int | float | Fraction | decimal.Decimal):
        raise InputError(f"{given!r} is not a fraction", remedy="give a number from 0 to 1")
    try:
        return Fraction(given)
    except (ValueError, OverflowError):
        raise InputError(f"{given!r} is not a fraction", remedy="give a number from 0 to 1") from None


def _limit(share: Fraction) -> int:
    """Return the hash that so large a share of all hashes is below."""
    return round(share * _ALL)


def _poisson(mean: Fraction) -> tuple[int, ...]:
    """Return for k = 0, 1, … the hash from which on a row comes more than k times.

    Computed in decimals, so that every machine draws the same.
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
    below: Node, fractions: Sequence[float], seed: int, by: str | Sequence[str] | None, names: Sequence[str]
) -> list[Sample]:
    """Divide rows into parts: by a hash of the ids, or of key columns."""
    shares: list[Fraction] = [_fraction(each) for each in fractions]
    if not shares or any(share < 0 for share in shares) or abs(sum(shares, Fraction(0)) - 1) > _NEAR:
        raise InputError(
            f"split({list(fractions)!r}) does not add up to 1",
            remedy="give fractions of at least 0 that add up to 1, as in (0.8, 0.2)",
        )
    limits = [0, *(min(_ALL, _limit(share)) for share in accumulate(shares[:-1])), _ALL]
    keys, salt = _keys(below, by), _salt(below, "split", seed)
    return [
        Sample(below, HashChoice(salt, low, high), keys, _says(f"part {name}", below, keys, seed))
        for name, (low, high) in zip(names, pairwise(limits), strict=True)
    ]


def folds(below: Node, k: object, seed: int, by: str | Sequence[str] | None) -> list[tuple[Sample, Sample]]:
    """Return k pairs (training, test)."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 2:
        raise InputError(f"folds({k!r}) is not a number of folds", remedy="give an integer of at least 2")
    keys, salt = _keys(below, by), _salt(below, "folds", seed)
    found = []
    for number in range(k):
        low, high = number * _ALL // k, (number + 1) * _ALL // k
        says = _says(f"fold {number + 1} of {k}", below, keys, seed)
        test = Sample(below, HashChoice(salt, low, high), keys, says)
        train = Sample(below, HashChoice(salt, low, high, outside=True), keys, f"all but {says}")
        found.append((train, test))
    return found


def _keys(below: Node, by: str | Sequence[str] | None) -> tuple[int, ...]:
    names = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    return tuple(column.index for column in key_columns(below.schema, names, "a split"))


def _says(what: str, below: Node, keys: Sequence[int], seed: int) -> str:
    names = ", ".join(below.schema[place].name for place in keys)
    return f"{what} by {names or 'row id'}, seed {seed}"
