"""K13: what a seed does to the order, and only to the order."""

from __future__ import annotations

from collections import Counter
from typing import Final

from trueline.testing.kit import Broken, NotApplicable, holds
from trueline.testing.read import same_ids
from trueline.testing.subjects import SEEDS, ViewSubject

# Of so many rows, two equal orders by chance are practically impossible.
_ENOUGH: Final = 20


@holds("view", "K13.ignored", "view:C83")
def ignored(subject: ViewSubject) -> None:
    """A view that cannot be shuffled ignores the seed."""
    if subject.view.can_shuffle:
        raise NotApplicable("the view can be shuffled")
    for seed in SEEDS:
        what = f"can_shuffle is False, and seed {seed} changes the order"
        same_ids(subject.serial.ids, subject.read([], seed=seed).ids, what, "ignore the seed")


@holds("view", "K13.permutation", "view:C84")
def permutation(subject: ViewSubject) -> None:
    """A seed gives the same rows in another order."""
    expected = Counter(subject.serial.ids)
    for seed in SEEDS:
        found = Counter(subject.read([], seed=seed).ids)
        if found != expected:
            lost, new = sum((expected - found).values()), sum((found - expected).values())
            raise Broken(
                f"with seed {seed}, {lost} rows are missing and {new} are new",
                "shuffle by ordering the rows by a hash of the seed and their ids",
            )


@holds("view", "K13.same_seed", "view:C85", "view:C27")
def same_seed(subject: ViewSubject) -> None:
    """A seed gives the same order each time."""
    for seed in SEEDS:
        first = subject.read([], seed=seed).ids
        what = f"with seed {seed} the order differs from one reading to the next"
        same_ids(first, subject.read([], seed=seed).ids, what, "let the seed alone decide")


@holds("view", "K13.unseeded", "view:C82")
def unseeded(subject: ViewSubject) -> None:
    """Without a seed the order is the view's own, no matter what was read before."""
    subject.read([], seed=SEEDS[0])
    what = "after a shuffled reading the order without a seed differs"
    same_ids(subject.serial.ids, subject.read([], seed=None).ids, what, "keep no state in the view")


@holds("view", "K13.differs", "view:C81", "view:C84")
def differs(subject: ViewSubject) -> str:
    """Two seeds give two orders."""
    rows = len(subject.serial)
    if not subject.view.can_shuffle:
        raise NotApplicable("the view cannot be shuffled")
    if rows < _ENOUGH or len(set(subject.serial.ids)) < _ENOUGH:
        raise NotApplicable(f"fewer than {_ENOUGH} rows")
    place = {who: row for row, who in enumerate(subject.serial.ids)}
    found = [subject.read([], seed=seed).ids for seed in SEEDS]
    if found[0] == found[1]:
        same = "the view's own" if found[0] == subject.serial.ids else "the same order"
        raise Broken(
            f"can_shuffle is True, and seeds {SEEDS} both give {same}",
            "use the seed, or set can_shuffle to False",
        )
    moved = sum(abs(place.get(who, row) - row) for row, who in enumerate(found[0])) / rows / rows
    return f"rows move by {moved:.0%} of the view on average (33% if every order is as likely)"
