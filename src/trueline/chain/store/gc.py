"""Removing what nothing refers to, beside commits in flight."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

from trueline.chain.store.store import Folder, Store, Stored
from trueline.errors import InputError
from trueline.identity.multihash import Multihash

Reachable = Mapping[Folder, Container[Multihash]] | Iterable[tuple[Folder, Multihash]]


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed, or would remove."""

    removed: list[Stored] = field(default_factory=list)
    kept_in_flight: int = 0  # unreferenced, but too new to be sure

    @property
    def bytes(self) -> int:
        """How much room the removed objects took."""
        return sum(stored.size for stored in self.removed)


def collect(
    store: Store,
    reachable: Callable[[], Reachable],
    *,
    older_than: float,
    now: float | None = None,
    dry_run: bool = False,
) -> Collected:
    """Remove the objects that nothing refers to and that were last put `older_than` seconds ago or earlier.

    `reachable` is called once, after the age limit is fixed; it reads the head
    and returns what is reached from it, as pairs or as a container for each folder.
    A commit that ends before that call is reached; one that ends later held a
    lease when the limit was fixed, or began after it, so its objects are younger.

    Ages are measured by the store's clock, which stamps objects and leases, and not
    by this machine's. A commit whose lease is gone, or was given up for its age,
    can no longer move a head once `fence` has returned, which is before the head
    is read here (rule guard:G5).

    A store without a head loses nothing: whether its first commit is in flight
    or its head was lost cannot be known. What dead writers had staged is cleared
    in any case, but for a `dry_run`, which removes nothing.
    """
    if not older_than >= 0:
        raise InputError(
            f"older_than is {older_than}", remedy="give a number of seconds, 0 or more", code="BadAge"
        )
    with store.lease():
        oldest = store.oldest_lease() if dry_run else store.fence()
        limit = (store.clock() if now is None else now) - older_than
        limit = limit if oldest is None else min(limit, oldest)
        if store.head() is None:
            return Collected()
        reached = _by_folder(reachable())
        removed: list[Stored] = []
        kept = 0
        for folder in Folder:
            for stored in [s for s in store.list(folder) if s.hash not in reached[folder]]:
                if stored.modified >= limit:
                    kept += 1
                elif dry_run or store.delete(folder, stored.hash, unless_after=limit):
                    removed.append(stored)
                elif store.size(folder, stored.hash) is not None:
                    kept += 1
        if removed and not dry_run:
            store.sync()
    return Collected(removed, kept)


def _by_folder(reachable: Reachable) -> Mapping[Folder, Container[Multihash]]:
    if isinstance(reachable, Mapping):
        missing = [folder.value for folder in Folder if folder not in reachable]
        if missing:
            # Taken as "nothing is reached" it would empty the folder.
            raise InputError(
                f"the reachable objects are not given for {', '.join(missing)}",
                remedy="give a container for every folder, an empty one where nothing is reached",
                code="ReachableIncomplete",
            )
        return reachable
    reached: dict[Folder, set[Multihash]] = {folder: set() for folder in Folder}
    for folder, name in reachable:
        reached[folder].add(name)
    return reached
