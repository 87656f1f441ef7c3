"""Where Spark works for a workspace: one session, made when it is first needed, left on close."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

from trueline.credentials import masked
from trueline.errors import InputError
from trueline.kernel.tasks import Tasks
from trueline.workspace.config import Config
from trueline.workspace.settings import SETTINGS

if TYPE_CHECKING:
    from trueline.chain.store.store import Store
    from trueline.readers import Source
    from trueline.view.execute.dispatch import EngineChoice

_REMOTE: Final = "sc://"
_ONE_PROCESS: Final = ("local[", _REMOTE)


class Room(Protocol):
    """Implemented by `trueline.spark.session.SparkRoom`."""

    session: Any

    @property
    def is_stopped(self) -> bool:
        """Whether its Spark was stopped, here or elsewhere."""

    def new_session(self) -> Any:
        """Return another session of ours; `release` gives it back."""

    def release(self, session: Any) -> None:
        """Give a session back."""

    def lent(self) -> AbstractContextManager[Any]:
        """Lend a session that is ready for canonical queries; whoever makes tables in it drops them."""

    def is_in(self, session: Any) -> bool:
        """Say whether a session is in the same Spark."""

    def tasks(self, about: str = "") -> Tasks:
        """Return what runs functions in Spark tasks; its web page shows what they are `about`."""

    def check_workers(
        self, *, writes: Sequence[Store] = (), reads: Sequence[Store] = (), files: Sequence[Source] = ()
    ) -> None:
        """Refuse workers that have another trueline, or do not see what they are to write and read."""

    def stop(self) -> None:
        """Give back what was made."""


class Rooms:
    """The room of a workspace, and those of other Sparks whose frames it was given."""

    def __init__(self, asked: Any, config: Config) -> None:
        self.asked = _checked(asked)
        self._config = config
        self._rooms: list[Room] = []
        self._lock = threading.RLock()
        # Whether a Spark may do work that did not come from it, None if nobody has asked; see `settle`.
        self.may_work: bool | None = None

    def settle(self) -> bool:
        """Say whether a Spark may work: by who is there, and by the settings, which are looked at once."""
        self.may_work = bool(self.asked is not None or self._rooms or self._config["spark.tasks"] == "always")
        return self.may_work

    @property
    def first(self) -> Room:
        """The workspace's own: in the session or the Spark asked for, else as the settings say."""
        with self._lock:
            self._rooms = [room for room in self._rooms if not room.is_stopped]
            if not self._rooms:
                from trueline.spark.session import enter
                from trueline.spark.settings import Settings

                # What was asked for needs no setting, so none is asked about.
                master, remote = (
                    self._where() if self.asked is None else (SETTINGS["spark.master"].default, None)
                )
                settings = Settings(master, remote, self._config["spark.driver.memory"])
                self._rooms.append(enter(self.asked, settings))
                self.may_work = True
            return self._rooms[0]

    def _where(self) -> tuple[str, str | None]:
        """Return master and remote: of two that were set, the one that comes first in who decides."""
        config = self._config
        remote = config.confirmed("spark.remote") if self._has_remote else None
        return config["spark.master"] if remote is not None else config.confirmed("spark.master"), remote

    @property
    def _has_remote(self) -> bool:
        config = self._config
        is_first = config.level("spark.remote") <= config.level("spark.master")
        return is_first and (config["spark.remote"] is not None or config.is_open("spark.remote"))

    def session(self) -> Any:
        """Return the session of the workspace's own room."""
        return self.first.session

    def at_hand(self) -> Any:
        """Return the session of a room that is there, or the one given; None rather than starting a Spark."""
        with self._lock:
            found = next((room.session for room in self._rooms if not room.is_stopped), None)
            is_given = self.asked is not None and not isinstance(self.asked, str)
            return self.asked if found is None and is_given else found

    @property
    def choice(self) -> EngineChoice:
        """Where views of the workspace are computed, as its settings say."""
        from trueline.view.execute.dispatch import EngineChoice

        return EngineChoice(self._config["views.engine"], self.at_hand)

    def of(self, session: Any) -> Room:
        """Return the room in the Spark of a session; a workspace without one makes that its own."""
        with self._lock:
            # A proposal that was not confirmed does not keep frames out of the Spark they are in.
            is_set = self._has_remote and not self._config.is_open("spark.remote")
            if self.asked is not None or is_set:
                _ = self.first
            found = next((room for room in self._rooms if not room.is_stopped and room.is_in(session)), None)
            if found is None:
                from trueline.spark.session import adopt

                found = adopt(session)
                self._rooms.append(found)
                self.may_work = True
            return found

    def tasks_for(self, frame: Any, about: str = "") -> Tasks:
        """Return what works on the rows of a Spark frame where they are."""
        return self.of(frame.sparkSession).tasks(about)

    def workers(self) -> Room | None:
        """Return the Spark whose tasks do the work of this workspace, None where this process does it.

        By default that is a cluster whose session was given, or is there; no Spark is started to find out.
        """
        wanted = self._config["spark.tasks"]
        if wanted == "never":
            return None
        with self._lock:
            return self.first if wanted == "always" or self._is_in_a_cluster() else None

    def _is_in_a_cluster(self) -> bool:
        if isinstance(self.asked, str):
            return self.asked != "local" and not self.asked.startswith(_ONE_PROCESS)
        there = next((room.session for room in self._rooms if not room.is_stopped), self.asked)
        if there is None:
            return False
        from trueline.spark.session import is_cluster

        return is_cluster(there)

    def tasks(
        self,
        about: str,
        *,
        writes: Sequence[Store] = (),
        reads: Sequence[Store] = (),
        files: Sequence[Source] = (),
    ) -> Tasks | None:
        """Return what does work in tasks that see these stores and files; None where this process does it."""
        room = self.workers()
        if room is None:
            return None
        room.check_workers(writes=writes, reads=reads, files=files)
        return room.tasks(about)

    def leave(self) -> None:
        """Give all of them back; they are made again when they are needed."""
        with self._lock:
            rooms, self._rooms = self._rooms, []
        for room in rooms:
            room.stop()


def _checked(asked: Any) -> Any:
    """Refuse what cannot be a Spark, before it is needed."""
    if isinstance(asked, str):
        name = "spark.remote" if asked.startswith(_REMOTE) else "spark.master"
        try:
            SETTINGS[name].read(asked)
        except InputError as error:
            raise InputError(
                f"spark is {masked(asked)!r:.80}, not an address", remedy=error.remedy, code="BadSpark"
            ) from None
    elif asked is not None and not hasattr(asked, "newSession"):
        raise InputError(
            f"spark is a {type(asked).__name__}, not a session or an address",
            remedy='give a SparkSession, "local[4]" or "sc://host:15002"',
            code="BadSpark",
        )
    return asked
