"""Work on a workspace that is interrupted at its operations on stores, and may die there."""

from __future__ import annotations

from trueline.chain.store.file import FileStore
from trueline.chain.store.object import ObjectStore
from trueline.errors import RetryError
from trueline.workspace.small_objects import FolderObjects, UrlObjects

STORES = dict.fromkeys((FileStore, ObjectStore), ("put", "sync", "move_head", "delete", "head"))
SMALL = dict.fromkeys((FolderObjects, UrlObjects), ("read", "put", "put_new", "swap", "remove", "names"))


class Died(BaseException):
    """A process is gone; nothing of it runs any more."""


class Operations:
    """Calls `before` at each operation on a store."""

    def __init__(self, monkeypatch):
        self.before, self.is_inside = None, False
        for kind, names in {**STORES, **SMALL}.items():
            for name in names:
                monkeypatch.setattr(kind, name, self.watched(getattr(kind, name)))

    def watched(self, operation):
        def called(*args, **kwargs):
            # What an operation itself does is part of it: it may hold a lock. Snapshots that are forgotten
            # give their leases back whenever Python collects them.
            is_lease = operation.__name__ == "remove" and str(args[-1]).startswith("pinned/")
            if self.is_inside or is_lease:
                return operation(*args, **kwargs)
            if self.before is not None:
                self.before()
            self.is_inside = True
            try:
                return operation(*args, **kwargs)
            finally:
                self.is_inside = False

        return called

    def run(self, work, at=None, meanwhile=lambda: None, *, dies=False):
        """Do some work; before its operation number `at` something else happens, and it may die of that.

        Says how many operations there were.
        """
        outer, self.before = self.before, None
        count = 0

        def before():
            nonlocal count
            count += 1
            if at is not None and (count == at or (dies and count > at)):
                self.before = None
                if count == at:
                    meanwhile()
                if dies:
                    self.before = before
                    raise Died
                self.before = before

        self.before = before
        try:
            work()
        except (Died, RetryError):
            pass  # who loses a race pulls again
        finally:
            self.before = outer
        return count
