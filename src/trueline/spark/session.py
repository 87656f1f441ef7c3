"""One Spark session of our own, with pinned settings, beside any session of the user."""

from __future__ import annotations

import atexit
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from trueline import console
from trueline.errors import EnvironmentMissing, InputError
from trueline.spark.launch import Launched, forget_jvm, jvm_has_ended, launch, pyspark_missing
from trueline.spark.settings import REMOTE, SQL_SETTINGS, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trueline.chain.store.store import Store
    from trueline.readers import Source
    from trueline.spark.engines import SessionAdapter
    from trueline.spark.tasks import SparkTasks

# The oldest Spark that has all we use; a Connect server may be older than the client.
OLDEST: Final = (4, 3)

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
        from trueline.spark.errors import translated

        with translated():
            check_age(given)
        self.given = given
        self._launched = launched
        self.sql_settings: Mapping[str, str] = SQL_SETTINGS
        self._made: list[SparkSession] = []
        # Sessions that are ready for canonical queries, and lent to nobody now.
        self._idle: list[SparkSession] = []
        self.session: SparkSession = self.new_session()
        self.engine: SessionAdapter = engine_of(self.session)

    @property
    def is_connect(self) -> bool:
        """Whether this is Spark Connect: the JVM cannot be reached."""
        return self.engine.is_connect

    @property
    def is_ours(self) -> bool:
        """Whether Spark was started here, and is stopped with this room."""
        return self._launched is not None

    @property
    def is_stopped(self) -> bool:
        """Whether its Spark was stopped, here or elsewhere."""
        return is_stopped(self.session)

    def new_session(self) -> SparkSession:
        """Return another session beside the first, pinned in the same way; `release` gives it back."""
        from trueline.spark.errors import translated

        with translated():
            session = self.given.newSession()
            for key, value in self.sql_settings.items():
                session.conf.set(key, value)
        self._made.append(session)
        return session

    def release(self, session: SparkSession) -> None:
        """Give a session back that `new_session` has made; it may be closed already."""
        with _lock:
            kept = [made for made in self._made if made is not session]
            is_ours, self._made = len(kept) < len(self._made), kept
        if is_ours and self.engine.is_connect:
            _release(session)

    @contextmanager
    def lent(self) -> Iterator[SparkSession]:
        """Lend a session that is ready for canonical queries; whoever makes tables in it drops them.

        To make one takes longer than a small query, so that it is lent again, unless something failed in it.
        A Connect server ends sessions that rest: there each is a new one.
        """
        from trueline.spark.canonical import prepare

        with _lock:
            found = self._idle.pop() if self._idle else None
        session = self.new_session() if found is None else found
        is_whole = False
        try:
            if found is None:
                prepare(session)
            yield session
            is_whole = not self.is_connect
        finally:
            if is_whole:
                with _lock:
                    self._idle.append(session)
            else:
                self.release(session)

    def is_in(self, session: SparkSession) -> bool:
        """Say whether a session is in the same Spark, so that work of one can read what the other wrote."""
        if session is self.given or session in self._made:
            return True
        if self.is_connect or not hasattr(session, "sparkContext"):
            return False
        try:
            return session.sparkContext is self.given.sparkContext
        except Exception:  # noqa: BLE001 (a Connect session has the attribute and refuses it)
            return False

    def tasks(self, about: str = "") -> SparkTasks:
        """Return what runs functions in Spark tasks; its web page shows what they are `about`."""
        from trueline.spark.tasks import SparkTasks

        return SparkTasks(self.engine, about)

    def check_workers(
        self, *, writes: Sequence[Store] = (), reads: Sequence[Store] = (), files: Sequence[Source] = ()
    ) -> None:
        """Refuse workers that have another trueline, or do not see what they are to write and read."""
        from trueline.spark.workers import workers_of

        workers_of(self.given).check(self.engine, writes=writes, reads=reads, files=files)

    def said(self) -> str:
        """Return the last lines of the JVM's log, if the JVM was started here."""
        return self._launched.said() if self._launched is not None else ""

    def stop(self) -> None:
        """Give back what was made: our sessions, and Spark itself if it was started here."""
        with _lock:
            if _Process.room is self:
                _Process.room = None
            made, self._made, self._idle = self._made, [], []
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
        if room is not None and not room.is_stopped:
            return room
        wanted = settings or Settings()
        if wanted.remote is not None:
            room = adopt(_connected(wanted.remote))
        elif (running := _running()) is not None:
            room = adopt(running)
        else:
            # It takes seconds, in which a terminal would say nothing.
            with console.current().progress("starting Spark"):
                launched = launch(wanted)
            room = SparkRoom(launched.session, launched)
            atexit.register(_at_exit, room)
        _Process.room = room
        return room


def enter(asked: SparkSession | str | None, settings: Settings) -> SparkRoom:
    """Return a room of one's own, to be given back with `stop`: in the session, or the Spark, asked for.

    Text is the address of a Connect server (`sc://…`) or a master (`local[4]`, `spark://…`). Without it the
    settings say where Spark runs; a Spark that this process already has is used regardless of them.
    """
    if asked is not None and not isinstance(asked, str):
        return adopt(asked)
    if isinstance(asked, str):
        is_remote = asked.startswith(REMOTE)
        settings = replace(settings, **{"remote": asked} if is_remote else {"remote": None, "master": asked})
    if settings.remote is not None:
        return adopt(_connected(settings.remote))
    room = start(settings)
    if isinstance(asked, str):
        _check_master(room, asked)
    return adopt(room.given)


def _check_master(room: SparkRoom, asked: str) -> None:
    """Refuse another master than that of the Spark this process has: there can be only one."""
    there = None if room.is_connect else room.given.sparkContext.master
    if there != asked:
        raise InputError(
            f"this process already has a Spark at {there or 'a Connect server'}, and {asked} was asked for",
            remedy="leave out spark=, pass the session as spark=, or use another process",
            code="OtherSpark",
            asked=asked,
        )


def adopt(session: SparkSession) -> SparkRoom:
    """Return a room in a Spark that the user started: in a new session, theirs is not changed."""
    if not hasattr(session, "newSession"):
        raise InputError(
            f"spark is a {type(session).__name__}, not a session",
            remedy="give a SparkSession, classic or Connect",
        )
    return SparkRoom(session)


def check_age(session: SparkSession) -> None:
    """Refuse a Spark that lacks what we use, before anything is asked of it."""
    version = str(session.version)
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise EnvironmentMissing(
            f"this is Spark {version}, and {oldest} or newer is needed",
            remedy=f"use Spark {oldest}: `pip install 'trueline[spark]'` here, the same Spark on a cluster",
            code="SparkTooOld",
            version=version,
        )


def is_cluster(session: SparkSession) -> bool:
    """Say whether the tasks of a session run in other processes than its driver, as its master says.

    Behind Connect that is not known, nor whether its machines see anything of this one.
    """
    from trueline.spark.engines import engine_of

    if engine_of(session).is_connect:
        return False
    master = str(session.sparkContext.master)
    return not (master == "local" or master.startswith("local["))


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
    if jvm_has_ended():
        forget_jvm()
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


def is_stopped(session: SparkSession) -> bool:
    """Say whether the Spark of a session was stopped, here or elsewhere."""
    from trueline.spark.engines import engine_of

    if engine_of(session).is_connect:
        return bool(getattr(session, "is_stopped", False))
    return getattr(session.sparkContext, "_jsc", None) is None or jvm_has_ended()


def _release(session: Any) -> None:
    """End a Connect session of ours; its own `stop` would stop a local server with it."""
    with suppress(Exception):
        session.client.release_session()
    with suppress(Exception):
        session.client.close()


def _at_exit(room: SparkRoom) -> None:
    with suppress(Exception):
        room.stop()
