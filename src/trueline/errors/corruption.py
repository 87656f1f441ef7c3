"""Errors of stored bytes that are not what their names or neighbours say they are."""

from __future__ import annotations

from trueline.errors.tree import CorruptionError


class MalformedBlock(CorruptionError, ValueError):
    """Bytes that are not a block of the format."""


class HashMismatch(CorruptionError):
    """Content that does not hash to its name (rule chain:C7)."""

    rule = "chain:C7"


class LinkRefused(CorruptionError):
    """A link, pipe or device in the place of a folder or file of a workspace; it is not followed."""


class CatalogueDamaged(CorruptionError):
    """The catalogue of a workspace's names is not what was written; `path` says where it is."""


class JournalDamaged(CorruptionError):
    """The journal of a run does not hold what was written; `place` is the number of the entry, if any."""


class ObjectMissing(CorruptionError, LookupError):
    """An object that something refers to is not in the store."""


class StateMissing(ObjectMissing):
    """A file of a dataset's state is gone; state is a cache and can be rebuilt."""


class HeadMissing(CorruptionError):
    """A dataset that has blocks but no head."""


class RolledBack(CorruptionError):
    """A head that went back, or leads to another dataset: a newer `seen` one is not in its past."""
