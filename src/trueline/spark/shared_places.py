"""Where rows are written that all machines of a cluster are to read.

That is in a store of a workspace, which was lent for it, or in a folder for temporary files of this machine,
if it is one of the others too.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from trueline.chain.store.file import FileStore
from trueline.chain.store.folders import Inside
from trueline.chain.store.scratch import MemoryScratch
from trueline.errors import EnvironmentMissing, StoreError
from trueline.kernel.temporary import Temporary
from trueline.readers import Source
from trueline.spark.engines import engine_of
from trueline.spark.workers import workers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trueline.chain.store.scratch import Scratch
    from trueline.chain.store.store import Store

# Sessions whose machines do not see the folder for temporary files of this one: they are asked once.
_apart: WeakSet[SparkSession] = WeakSet()
# What returns a store that the tasks of a session see; it raises where they do not.
SharedPlace: TypeAlias = "Callable[[], Store]"


def shared_scratch(session: SparkSession, lent: Sequence[SharedPlace], stack: ExitStack) -> Scratch | None:
    """Return scratch that all machines see, in the first such place; None where there is none.

    It goes with the stack.
    """
    places: list[SharedPlace] = [*lent]
    if session not in _apart:
        places.append(partial(shared_folder, session, stack))
    for place in places:
        found = _opened(place, stack)
        if found is not None:
            return found
    return None


def seen_by_all(session: SparkSession, store: Store) -> Store:
    """Return a store, if all machines see it."""
    workers_of(session).check(engine_of(session), writes=[store])
    return store


def is_seen_by_all(session: SparkSession, folder: Path) -> bool:
    """Say whether all machines see a folder of the user's; False where this process cannot write there."""
    try:
        with NamedTemporaryFile(dir=folder, prefix=".") as mark:
            mark.write(secrets.token_bytes(16))
            mark.flush()
            workers_of(session).check(engine_of(session), files=[Source.file(mark.name)])
    except OSError:
        return False
    except EnvironmentMissing as error:
        if error.code != "FolderNotShared":
            raise
        return False
    return True


def shared_folder(session: SparkSession, stack: ExitStack) -> Store:
    """Return a folder for temporary files of this machine, if it is one of the others too."""
    folder = Temporary("frame")
    stack.callback(folder.remove)
    # All such folders are in one, about which workers are asked once.
    store = FileStore(Inside(folder.path.parent, (folder.path.name,)), durable=False)
    stack.callback(store.close)
    try:
        return seen_by_all(session, store)
    except EnvironmentMissing as error:
        if error.code == "FolderNotShared":
            _apart.add(session)
        raise


def _opened(place: SharedPlace, stack: ExitStack) -> Scratch | None:
    """Return scratch that a stack keeps; None where not all machines see it, or it is not ours to write."""
    try:
        # With its own lease: this one is held for as long as views are, those of commits are not.
        own = stack.enter_context(closing(copy.copy(place())))
        found = stack.enter_context(own.scratch())
        return None if isinstance(found, MemoryScratch) else found
    except StoreError:
        return None
    except EnvironmentMissing as error:
        if error.code != "FolderNotShared":
            raise
        return None


def give_back(stack: ExitStack) -> None:
    """Give scratch back; where that fails, `gc` removes it."""
    with suppress(Exception):
        stack.close()
