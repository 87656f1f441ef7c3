"""Whose turn it is to commit to an object store, and who waits meanwhile."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore as Client

# A turn that was not renewed for so long counts as forgotten.
TURN_SECONDS: Final = 60.0
_ALONE: Final = b" alone"
_LONGEST_PAUSE: Final = 1.0


class ObjectTurn:
    """The object `private/turn`: it holds a token of whose turn it is, and `alone` if others have to wait."""

    def __init__(
        self,
        client: Client,
        key: str,
        refusing: Callable[[str, str], AbstractContextManager[None]],
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._client = client
        self._key = key
        self._refusing = refusing
        self._holder: int | None = None

    @contextmanager
    def taken(self, *, alone: bool) -> Iterator[None]:
        """Wait for the turn, and hold it; it is renewed for as long as the work takes.

        A pull computes under its turn: if that lapsed, whoever waits would compute the same beside it.
        """
        mine = secrets.token_hex(8).encode("ascii") + (_ALONE if alone else b"")
        self._wait(mine)
        self._holder = threading.get_ident()
        done = threading.Event()
        keeper = threading.Thread(target=self._renew, args=(mine, done), daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()
            self._holder = None
            self._end(mine)

    def keep_off(self) -> None:
        """Wait while somebody else is alone: a writer that takes no turns could starve a large commit."""
        import obstore

        if self._holder == threading.get_ident():
            return
        for pause in _pauses():
            with self._refusing("wait to write to", self._key):
                try:
                    found = obstore.get(self._client, self._key)
                except FileNotFoundError:
                    return
                if not found.bytes().to_bytes().endswith(_ALONE) or self._is_old(found.meta):
                    return
            time.sleep(pause)

    def _wait(self, mine: bytes) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        for pause in _pauses():
            with self._refusing("wait to write to", self._key):
                try:
                    obstore.put(self._client, self._key, mine, mode="create")
                    return
                except AlreadyExistsError:
                    try:
                        meta = obstore.head(self._client, self._key)
                    except FileNotFoundError:
                        continue
                    if self._is_old(meta):
                        obstore.delete(self._client, self._key)
                        continue
            time.sleep(pause)

    def _renew(self, mine: bytes, done: threading.Event) -> None:
        import obstore
        from obstore.exceptions import BaseError

        while not done.wait(TURN_SECONDS / 3):
            try:
                if obstore.get(self._client, self._key).bytes().to_bytes() == mine:
                    obstore.put(self._client, self._key, mine)
            except (BaseError, OSError):
                continue  # the head still moves by compare-and-set

    def _end(self, mine: bytes) -> None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            if obstore.get(self._client, self._key).bytes().to_bytes() == mine:
                obstore.delete(self._client, self._key)
        except (BaseError, OSError):
            return  # it expires

    def _is_old(self, meta: ObjectMeta) -> bool:
        """Whether a turn was forgotten, by the clock that stamped it."""
        return self._clock() - meta["last_modified"].timestamp() > TURN_SECONDS


def _pauses() -> Iterator[float]:
    """Yield ever longer pauses, up to a second."""
    pause = 0.02
    while True:
        yield pause
        pause = min(pause * 1.5, _LONGEST_PAUSE)
