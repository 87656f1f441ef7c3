"""Where an append works: in this process, or in Spark's tasks, which see all that it reads and writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trueline import readers
from trueline.dataset.append.append import are_files
from trueline.dataset.append.intake import AppendRequest, is_frame
from trueline.dataset.append.staged import StagedRows
from trueline.dataset.append.stream import IN_MEMORY_BYTES, plan_on_spark

if TYPE_CHECKING:
    from trueline.chain.store.store import Store
    from trueline.kernel.tasks import Tasks
    from trueline.workspace.spark_sessions import Room, Rooms


def place_append(
    spark: Rooms, name: str, store: Store, request: AppendRequest
) -> tuple[AppendRequest, Tasks | None]:
    """Return a request as it is carried out, and the tasks that do so; None for this process.

    Rows that this process holds or draws pass it anyway, in bounded memory: of many, tasks write the slices.
    """
    data, about = request.data, f"append to {name}"
    if is_frame(data):
        return request, spark.tasks_for(data, about)
    session = _session_of(data)
    if session is not None:
        # It runs on Spark as it was asked to; so its rows are written there too.
        there = spark.of(session)
        there.check_workers(writes=[store])
        _lend(data, store)
        return request, there.tasks(about)
    if _stays_here(data):
        return request, None
    room = spark.workers()
    if room is None:
        return request, None
    files = readers.find(data) if are_files(data) else []
    if any(file.is_in_memory for file in files):
        return request, None
    room.check_workers(writes=[store], files=files)
    return _on(room, request, store), room.tasks(about)


def _stays_here(data: object) -> bool:
    """Say whether rows are in this process and so few that Spark would begin later than they are written."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return bool(data.nbytes <= IN_MEMORY_BYTES)
    return isinstance(data, StagedRows) or (isinstance(data, list | tuple) and not are_files(data))


def _on(room: Room, request: AppendRequest, store: Store) -> AppendRequest:
    """Return a request whose views and steps run in the Spark of a room."""
    from trueline.view.view import View

    data, preparation = request.data, request.preparation
    if isinstance(data, View) and preparation is None:
        from trueline.view.engine import engine

        if engine().travels(data.node, room.session):
            _lend(data, store)
            return replace(request, data=data.on_spark(room.session))
    if preparation is not None and preparation.executor is None:
        from trueline.spark.run_executor import Spark

        executor: Any = Spark(room)  # type: ignore[arg-type]
        return replace(request, preparation=replace(preparation, executor=executor))
    return request


def _lend(view: Any, store: Store) -> None:
    """Let frames and rows of this process, which a view rests on, be where the tasks see the dataset."""
    from trueline.view.engine import engine

    engine().lend(view.node, lambda: store)


def _session_of(data: object) -> Any:
    """Return the session of a view that runs on Spark; None for other data."""
    if not hasattr(data, "__arrow_c_stream__"):
        return None
    plan = plan_on_spark(data)
    if plan is None:
        return None
    from trueline.view.engine import engine

    return engine().session_of(plan.session)
