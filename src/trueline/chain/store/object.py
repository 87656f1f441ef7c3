"""A dataset in an object store (S3, GCS, Azure, …), through `obstore`."""

from __future__ import annotations

import io
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias, cast

from trueline.chain.store.object_client import RangeReader, condition, connect, first_line, is_refusal
from trueline.chain.store.object_leases import LEASE_SECONDS, ObjectLeases
from trueline.chain.store.object_turn import ObjectTurn
from trueline.chain.store.scratch import ObjectScratch
from trueline.chain.store.store import (
    Folder,
    NamingWriter,
    Stored,
    check_ref,
    head_moved,
    is_ref,
    object_missing,
)
from trueline.errors import CorruptionError, InputError, OutcomeUnknown, StorageReadOnly, StoreError
from trueline.identity.multihash import Multihash

if TYPE_CHECKING:
    from obstore import ObjectMeta

_TURN: Final = "private/turn"
_SCRATCH: Final = "private/scratch"
# Objects up to this size go out in one request, and only those are kept in memory while written.
_SINGLE_PUT: Final = 8 << 20
# A request costs tens of milliseconds whatever it asks for.
_READ_AHEAD: Final = 256 << 10
_ATTEMPTS: Final = 3
_Named: TypeAlias = tuple[Folder, Multihash]
_REF_BYTES: Final = 4096


class ObjectStore:
    """Objects and head of one dataset as keys below a URL, in the Open Data Fabric layout.

    A put is durable and visible when it returns. The head moves by a
    conditional put. `options` are those of `obstore.store.from_url`
    (credentials, region, endpoint, …) and are not part of `location`.
    `memory://name/…` is kept by the process under its name.

    A lease is renewed by the writes made under it and may be given up a day
    after the last of them; `object_leases` says why no head then moves to
    what was removed.

    >>> store = ObjectStore("memory://example/trades")
    >>> block = store.put(Folder.BLOCKS, b"first")
    >>> store.move_head(block, expected=None)
    >>> ObjectStore("memory://example/trades").head() == block
    True
    """

    def __init__(self, url: str, *, lease_seconds: float = LEASE_SECONDS, **options: Any) -> None:
        self.location = url.rstrip("/")
        self._options = options
        self._lease_seconds = lease_seconds
        self._client, self._prefix = connect(self.location, options)
        self._mutex = threading.RLock()
        self._fresh: set[Multihash] = set()
        self._unsafe: set[Multihash] = set()
        self._relied: dict[tuple[Folder, Multihash], None] = {}
        self._callers = 0
        self._implicit = False
        self._leases = ObjectLeases(self._client, self._key, self._refusing, lease_seconds)
        self._turns = ObjectTurn(self._client, self._key(_TURN), self._refusing, self._leases.clock)

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self.location, self._lease_seconds, self._options))

    def __repr__(self) -> str:
        return f"ObjectStore({self.location!r})"

    def _key(self, *parts: str) -> str:
        return "/".join((self._prefix, *parts)) if self._prefix else "/".join(parts)

    # --- reading ----------------------------------------------------------

    def get(self, folder: Folder, name: Multihash, *, limit: int | None = None) -> bytes:
        import obstore

        with self._refusing("read", f"{folder}/{name}", missing=(folder, name)):
            found = obstore.get(self._client, self._key(folder, name))
            if limit is not None and found.meta["size"] > limit:
                raise CorruptionError(
                    f"{self.location}/{folder}/{name} is not the object its name says: "
                    f"{found.meta['size']:,} bytes, at most {limit:,} expected",
                    remedy="restore the object from a copy of the dataset",
                    path=f"{self.location}/{folder}/{name}",
                )
            return found.bytes().to_bytes()

    def open(self, folder: Folder, name: Multihash) -> BinaryIO:
        size = self.size(folder, name)
        if size is None:
            raise object_missing(folder, name, self.location)
        reader = RangeReader(partial(self._range, folder, name), size)
        return cast("BinaryIO", io.BufferedReader(reader, _READ_AHEAD))

    def _range(self, folder: Folder, name: Multihash, start: int, length: int) -> bytes:
        import obstore

        with self._refusing("read", f"{folder}/{name}", missing=(folder, name)):
            key = self._key(folder, name)
            return obstore.get_range(self._client, key, start=start, length=length).to_bytes()

    def size(self, folder: Folder, name: Multihash) -> int | None:
        found = self._look(self._key(folder, name))
        return None if found is None else found["size"]

    def list(self, folder: Folder) -> Iterator[Stored]:
        for meta in self._list(folder):
            text = meta["path"].rpartition("/")[2]
            try:
                name = Multihash(text)
            except InputError:
                continue
            if name == text:
                yield Stored(name, meta["size"], meta["last_modified"].timestamp())

    def _list(self, folder: str) -> Iterator[ObjectMeta]:
        """Iterate over what is directly in a folder."""
        import obstore

        within = self._key(folder)
        with self._refusing("list", folder):
            for page in obstore.list(self._client, within):
                yield from (meta for meta in page if meta["path"].rpartition("/")[0] == within)

    def _look(self, key: str) -> ObjectMeta | None:
        import obstore

        with self._refusing("read", key):
            try:
                return obstore.head(self._client, key)
            except FileNotFoundError:
                return None

    # --- writing objects --------------------------------------------------

    def put(self, folder: Folder, data: bytes) -> Multihash:
        name = Multihash.of(data)
        self._put_object(folder, name, data)
        return name

    def writer(self, folder: Folder) -> NamingWriter:
        spool = tempfile.SpooledTemporaryFile(max_size=_SINGLE_PUT)  # noqa: SIM115 (closed by the writer)

        def keep(name: Multihash, size: int) -> Stored:
            spool.seek(0)
            if size <= _SINGLE_PUT:
                self._put_object(folder, name, spool.read())
            else:
                self._put_object(folder, name, cast("BinaryIO", spool))
            spool.close()
            return Stored(name, size, time.time())

        return NamingWriter(spool, keep, spool.close)

    def _put_object(self, folder: Folder, name: Multihash, data: bytes | BinaryIO) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        key = self._key(folder, name)
        with self._mutex:
            self._implicit = self._implicit or not self._callers
            self._keep_lease(self._leases.renew)
        with self._refusing("write", f"{folder}/{name}"):
            if isinstance(data, bytes):
                try:
                    obstore.put(self._client, key, data, mode="create")
                except AlreadyExistsError:
                    # Written again for its time: it says that a commit in flight needs the object.
                    obstore.put(self._client, key, data, mode="overwrite")
                    with self._mutex:
                        self._relied[folder, name] = None
            else:
                # Parts have no condition; the same bytes take the place of the same bytes.
                obstore.put(self._client, key, data, mode="overwrite", use_multipart=True)
        if folder is Folder.BLOCKS:
            with self._mutex:
                # A bulk load needs no more than its last blocks here.
                if len(self._fresh) >= 10_000:
                    self._fresh.clear()
                self._fresh.add(name)
                self._unsafe.discard(name)

    def renew(self, folder: Folder, name: Multihash) -> bool:
        import obstore

        key, aside = self._key(folder, name), self._key(_SCRATCH, secrets.token_hex(8), name)
        with self._mutex:
            self._keep_lease(self._leases.renew)
        with self._refusing("write", f"{folder}/{name}"):
            try:
                # Not every store lets an object be copied to itself.
                obstore.copy(self._client, key, aside)
                obstore.copy(self._client, aside, key)
            except FileNotFoundError:
                return False
            finally:
                self.clear_scratch(aside)
        with self._mutex:
            self._relied[folder, name] = None
        return True

    def sync(self) -> None:
        """Check that `gc` neither has removed nor removes an object that was there and was put again."""
        with self._mutex:
            relied = list(self._relied)
            if relied:
                self._leases.refuse_beside_removals()
        for folder, name in relied:
            if self.size(folder, name) is None:
                raise StoreError(
                    f"{self.location}/{folder}/{name} was removed while it was being put again",
                    remedy="put the objects of the commit again",
                    path=f"{self.location}/{folder}/{name}",
                )
            with self._mutex:
                self._relied.pop((folder, name), None)

    def delete(self, folder: Folder, name: Multihash, *, unless_after: float | None = None) -> bool:
        import obstore

        key = self._key(folder, name)
        with self._mutex:
            try:
                while True:
                    self._leases.announce()
                    found = self._look(key)
                    if found is None or (
                        unless_after is not None and found["last_modified"].timestamp() >= unless_after
                    ):
                        return False
                    if self._leases.is_announced:
                        break
                with self._refusing("remove", f"{folder}/{name}"):
                    obstore.delete(self._client, key)
            finally:
                if not self._callers:
                    self._leases.retract()
        return True

    # --- the head ---------------------------------------------------------

    def head(self, ref: str = "head") -> Multihash | None:
        return self._read_ref(ref)[0]

    def refs(self) -> Iterator[str]:
        yield from filter(is_ref, (meta["path"].rpartition("/")[2] for meta in self._list("refs")))

    def _read_ref(self, ref: str) -> tuple[Multihash | None, ObjectMeta | None]:
        import obstore

        check_ref(ref)
        with self._refusing("read", f"refs/{ref}"):
            try:
                found = obstore.get(self._client, self._key("refs", ref))
            except FileNotFoundError:
                return None, None
            text = found.bytes().to_bytes() if found.meta["size"] <= _REF_BYTES else b""
        if text and not text.strip(b"\n"):
            return None, found.meta  # a fence around nothing
        try:
            return Multihash(text.decode("ascii").strip()), found.meta
        except ValueError:
            raise CorruptionError(
                f"{self.location}/refs/{ref} does not name a block: it holds {text[:80]!r}",
                remedy="write into it the hash of the newest block, as another copy of the dataset has it",
                path=f"{self.location}/refs/{ref}",
            ) from None

    def move_head(
        self,
        new: Multihash,
        *,
        expected: Multihash | None,
        ref: str = "head",
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        check_ref(ref)
        with self.lease():
            self.sync()
            if new in self._unsafe or (new not in self._fresh and self.size(Folder.BLOCKS, new) is None):
                raise object_missing(Folder.BLOCKS, new, self.location)
            self._turns.keep_off()
            self._compare_and_set(ref, new, expected)
            with self._mutex:
                self._implicit = False
                self._fresh.clear()
        if meanwhile is not None:
            meanwhile()

    def _compare_and_set(self, ref: str, new: Multihash, expected: Multihash | None) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        sent: BaseError | None = None
        for _ in range(_ATTEMPTS):
            found, meta = self._read_after(sent, ref, new)
            if sent is not None and found == new:
                return
            if found != expected:
                if sent is None or isinstance(sent, AlreadyExistsError | PreconditionError):
                    raise head_moved(ref, expected, found, self.location)
                # Someone moved the head on, perhaps from ours.
                raise self._unknown(sent, ref, new)
            self._confirm_lease(sent, ref, new)
            try:
                obstore.put(self._client, self._key("refs", ref), new.encode("ascii"), mode=condition(meta))
                return
            except BaseError as error:
                if is_refusal(error):
                    raise self._refused(error, "move", f"refs/{ref}") from error
                # A condition may also fail because the library sent a request again that had been done.
                if sent is None or not isinstance(error, AlreadyExistsError | PreconditionError):
                    sent = error
        found, _ = self._read_after(sent, ref, new)
        if found != new:
            raise self._unknown(sent, ref, new)

    def _read_after(
        self, sent: Exception | None, ref: str, new: Multihash
    ) -> tuple[Multihash | None, ObjectMeta | None]:
        """Read the head; if it cannot be read after a request was sent, its outcome is unknown."""
        try:
            return self._read_ref(ref)
        except StoreError:
            if sent is None:
                raise
            raise self._unknown(sent, ref, new) from sent

    def _confirm_lease(self, sent: Exception | None, ref: str, new: Multihash) -> None:
        """Check, after the head was read and before it moves, that the commit's lease was never given up."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            with self._mutex:
                self._keep_lease(self._leases.confirm)
        except StoreError:
            # A request that was not answered may still arrive.
            if sent is None or isinstance(sent, AlreadyExistsError | PreconditionError):
                raise
            raise self._unknown(sent, ref, new) from sent

    def _unknown(self, error: Exception | None, ref: str, new: Multihash) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"refs/{ref} of {self.location} was to become {new.short}; "
            f"the store did not say whether it did: {first_line(error)}",
            remedy="see whether the head is the commit's, or has it among its ancestors, before trying again",
            ref=ref,
            new=new,
            location=self.location,
        )

    # --- leases -----------------------------------------------------------

    @contextmanager
    def lease(self) -> Iterator[None]:
        with self._mutex:
            self._keep_lease(self._leases.renew)
            self._callers += 1
        try:
            yield
        finally:
            with self._mutex:
                self._callers -= 1
                if not self._callers:
                    self._leases.retract()
                    if not self._implicit:
                        self._leases.end()

    def _keep_lease(self, keep: Callable[[], None]) -> None:
        """Renew or confirm the lease; where it is lost, and no other writer uses it, the next one is new."""
        try:
            keep()
        except StoreError as error:
            if error.code == "LeaseLost":
                self._implicit = False
                # To try again is to put again: what these blocks name may be gone.
                self._unsafe |= self._fresh
                self._fresh.clear()
                if not self._callers:
                    self._leases.end()
            raise

    def oldest_lease(self) -> float | None:
        return self._leases.oldest()

    def clock(self) -> float:
        with self._mutex:
            return self._leases.measure()

    def fence(self) -> float | None:
        """Give up the leases that were not renewed for `lease_seconds`, and stop the commits under them."""
        with self._mutex:
            oldest, dead = self._leases.give_up_old()
        if dead:
            for ref in sorted({*self.refs(), "head"}):
                self._leases.fence(self._key("refs", ref))
            self._leases.forget(dead)
        return oldest

    # --- turns and scratch ------------------------------------------------

    def turn(self, *, alone: bool = False) -> AbstractContextManager[None]:
        return self._turns.taken(alone=alone)

    @contextmanager
    def scratch(self) -> Iterator[ObjectScratch]:
        with self.lease():
            place = ObjectScratch(self, self._key(_SCRATCH, f"{time.time_ns()}-{secrets.token_hex(4)}"))
            try:
                yield place
            finally:
                place.clear()

    def put_scratch(self, key: str, file: BinaryIO) -> None:
        import obstore

        with self._refusing("write", key):
            obstore.put(self._client, key, file)

    def get_scratch(self, key: str, start: int, length: int) -> bytes:
        import obstore

        with self._refusing("read", key):
            return obstore.get_range(self._client, key, start=start, length=length).to_bytes()

    def scratch_size(self, key: str) -> int:
        meta = self._look(key)
        if meta is None:
            raise StoreError(f"{key} is not in {self.location}", remedy="start the work again", path=key)
        return meta["size"]

    def scratch_names(self, prefix: str) -> tuple[str, ...]:
        below = prefix.removeprefix(self._prefix).strip("/")
        return tuple(sorted(meta["path"].rpartition("/")[2] for meta in self._list(below)))

    def scratch_store(self, place: ObjectScratch) -> ObjectStore:
        below = place.prefix.removeprefix(self._prefix).strip("/")
        return _reopen(f"{self.location}/{below}", self._lease_seconds, self._options)

    def clear_scratch(self, prefix: str) -> None:
        import obstore
        from obstore.exceptions import BaseError

        with suppress(BaseError, OSError):  # what stays is only untidy
            for page in obstore.list(self._client, prefix):
                obstore.delete(self._client, [meta["path"] for meta in page])

    def close(self) -> None:
        with self._mutex:
            self._implicit = False
            self._relied.clear()
            if not self._callers:
                self._leases.end()

    # --- errors -----------------------------------------------------------

    @contextmanager
    def _refusing(self, doing: str, what: str, missing: _Named | None = None) -> Iterator[None]:
        """Turn errors of the object store into ours."""
        from obstore.exceptions import BaseError

        try:
            yield
        except StoreError:
            raise
        except FileNotFoundError as error:
            if missing is None:
                raise self._refused(error, doing, what) from error
            raise object_missing(*missing, self.location) from None
        except (BaseError, OSError, NotImplementedError) as error:
            raise self._refused(error, doing, what) from error

    def _refused(self, error: Exception, doing: str, what: str) -> StoreError:
        path = f"{self.location}/{what}"
        problem = f"cannot {doing} {path}: {first_line(error)}"
        if is_refusal(error):
            remedy = (
                "check the credentials and their permissions; writing needs a store with conditional puts"
            )
            return StorageReadOnly(problem, remedy=remedy, path=path)
        return StoreError(problem, remedy="check the connection to the store, then try again", path=path)


def _reopen(location: str, lease_seconds: float, options: dict[str, Any]) -> ObjectStore:
    return ObjectStore(location, lease_seconds=lease_seconds, **options)
