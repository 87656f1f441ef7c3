"""Errors after which trying again is safe: nothing was changed."""

from __future__ import annotations

import errno

from trueline.errors.tree import RetryError, TruelineError


class RefCASFailed(RetryError):
    """The head moved while a commit was being prepared (rule chain:C8)."""

    rule = "chain:C8"


class StoreError(RetryError, OSError):
    """The storage refused an operation; what was there before is still there."""

    __str__ = TruelineError.__str__


class OutOfMemory(RetryError, MemoryError):
    """Memory ran out; nothing was changed, and the data is not to blame."""

    __str__ = TruelineError.__str__


class StorageFull(StoreError):
    """No space left where the dataset is stored."""


class StorageReadOnly(StoreError):
    """The place where the dataset is stored cannot be written to."""


class PullError(RetryError):
    """Some datasets could not be pulled; `report` says which, and what was done for the others."""


class StalePlan(RetryError):
    """What a plan was made from has moved since; `moved` says what."""


class WaitTimeout(RetryError, TimeoutError):
    """A commit is not visible yet in datasets that were waited for; it stays committed.

    `lagging` are those datasets, `pulled` those of them that somebody pulls now, or has begun to. `held_by`
    are open transactions that keep the commit from all of them, each with the time it expires.
    """

    __str__ = TruelineError.__str__


class SparkFailed(RetryError):
    """Spark gave up on a job: out of memory, a lost worker or connection, cancelled."""


class RunFailed(RetryError):
    """A step of a run failed on a value that is final; `step`, `key` and `generations` say where."""

    step: int
    key: object
    generations: tuple[int, ...]


class JournalBusy(RetryError):
    """Another run writes the journal that was named."""


class TaskFailed(RetryError):
    """A function raised something unexpected while it worked on one piece; `traceback` says where."""


# What Arrow's allocator says where a library between it and us made an OSError of it.
_NO_MEMORY = ("malloc of size", "realloc of size", "std::bad_alloc")


def check_memory(error: BaseException, doing: str) -> None:
    """Raise `OutOfMemory` if that is what an error is, whatever class it has; call it before blaming data.

    >>> check_memory(ValueError("not a number"), "reading the file")
    >>> check_memory(MemoryError(), "reading the file")
    Traceback (most recent call last):
    trueline.errors.OutOfMemory: out of memory while reading the file
      → give this process more memory, or read or append less at a time
    """
    if isinstance(error, OutOfMemory):
        raise error
    refused = isinstance(error, OSError) and (
        error.errno == errno.ENOMEM or any(words in str(error) for words in _NO_MEMORY)
    )
    if isinstance(error, MemoryError) or refused:
        said = str(error).splitlines()[0][:200] if str(error) else ""
        raise OutOfMemory(
            f"out of memory while {doing}" + (f": {said}" if said else ""),
            remedy="give this process more memory, or read or append less at a time",
        ) from error
