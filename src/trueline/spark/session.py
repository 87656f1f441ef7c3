"""The room Spark works in: one session of our own, pinned, beside whatever the user does."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trueline.errors import InputError
from trueline.spark.launch import Launched, launch, pyspark_missing
from trueline.spark.settings import SQL_SETTINGS, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trueline.spark.engines import Engine
    from trueline.spark.tasks import SparkTasks

_lock = threading.RLock()


class _Process:
    """What this process has."""

    room: SparkRoom | None = None


class SparkRoom:
    """A Spark, classic or Connect, with a session of ours in it.

    `session` has its own SQL settings (`sql_settings`), views and functions; `given`, the session it was
    made from, is never changed.
    """

    def __init__(self, given: SparkSession, launched: Launched | None = None) -> None:
        from trueline.spark.engines import engine_of

        self.given = given
        self._launched = launched
        self.sql_settings: Mapping[str, str] = SQL_SETTINGS
        self._made: list[SparkSession] = []
        self.session: SparkSession = self.new_session()
        self.engine: Engine = engine_of(self.session)

    @property
    def is_connect(self) -> bool:
        """Whether this is Spark Connect: no JVM in reach."""
        return self.engine.is_connect

    @property
    def is_ours(self) -> bool:
        """Whether Spark was started here, and is stopped with this room."""
        return self._launched is not None

    def new_session(self) -> SparkSession:
        """Return another session beside the first, pinned in the same way."""
        session = self.given.newSession()
        for key, value in self.sql_settings.items():
            session.conf.set(key, value)
        self._made.append(session)
        return session

    def tasks(self) -> SparkTasks:
        """Return what runs functions in Spark tasks."""
        from trueline.spark.tasks import SparkTasks

        return SparkTasks(self)

    def said(self) -> str:
        """Return the last lines of the JVM's log, if the JVM was started here."""
        return self._launched.said() if self._launched is not None else ""

    def stop(self) -> None:
        """Give back what was made: our sessions, and Spark itself if it was started here."""
        with _lock:
            if _Process.room is self:
                _Process.room = None
            made, self._made = self._made, []
            if self.engine.is_connect:
                for session in made:
                    _release(session)
            launched, self._launched = self._launched, None
            if launched is not None:
                launched.stop()

    def __repr__(self) -> str:
        kind = "Connect" if self.is_connect else "classic"
        return f"SparkRoom({kind}, {'started here' if self.is_ours else 'adopted'})"


def start(settings: Settings | None = None) -> SparkRoom:
    """Return the room of this process, starting Spark the first time; later settings change nothing.

    If the process already has a Spark of its own, that is used: there can be only one. What is started
    here is stopped when the process ends.
    """
    with _lock:
        room = _Process.room
        if room is not None and not _is_stopped(room):
            return room
        wanted = settings or Settings()
        if wanted.remote is not None:
            room = adopt(_connected(wanted.remote))
        elif (running := _running()) is not None:
            room = adopt(running)
        else:
            launched = launch(wanted)
            room = SparkRoom(launched.session, launched)
            atexit.register(_at_exit, room)
        _Process.room = room
        return room


def adopt(session: SparkSession) -> SparkRoom:
    """Return a room in a Spark that is someone else's: in a new session, theirs is left as it is."""
    if not hasattr(session, "newSession"):
        raise InputError(
            f"spark is a {type(session).__name__}", remedy="give a SparkSession, classic or Connect"
        )
    return SparkRoom(session)


def _running() -> SparkSession | None:
    """Return the classic session this process already has, if any."""
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise pyspark_missing() from None
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 (asking must not start one)
    if context is None or context._jsc is None:  # noqa: SLF001
        return None
    return SparkSession.getActiveSession() or SparkSession(context)


def _connected(address: str) -> SparkSession:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise pyspark_missing() from None
    from trueline.spark.errors import translated

    with translated():
        return SparkSession.builder.remote(address).getOrCreate()


def _is_stopped(room: SparkRoom) -> bool:
    if room.is_connect:
        return bool(getattr(room.session, "is_stopped", False))
    return getattr(room.session.sparkContext, "_jsc", None) is None


def _release(session: Any) -> None:
    """End a Connect session of ours; its own `stop` would stop a local server with it."""
    with suppress(Exception):
        session.client.release_session()
    with suppress(Exception):
        session.client.close()


def _at_exit(room: SparkRoom) -> None:
    with suppress(Exception):
        room.stop()
