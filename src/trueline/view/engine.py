"""The engine of Spark: what views ask of it, loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from trueline.errors import EnvironmentMissing
from trueline.view.plan.node import Node

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from trueline.kernel.chunk import Piece
    from trueline.view.origin import Origin
    from trueline.view.plan.node import Want
    from trueline.view.source import RowSource

Written = TypeVar("Written")


@dataclass(frozen=True)
class ChosenEngine:
    """Where the rows of a plan are computed, and why there."""

    is_spark: bool
    why: str


class Engine(Protocol):
    """Implemented by `trueline.spark.views`."""

    def freeze(
        self,
        frame: Any,
        order_by: Sequence[str] | None = None,
        origins: Mapping[str, Origin] | None = None,
        read_at: str = "",
        place: Callable[[], Any] | None = None,
    ) -> RowSource:
        """Return the rows of a frame in a fixed order: by these columns, or as they come the first time.

        `read_at` is the cut of the snapshot that it reads, if it reads one. A frame is computed when its rows
        are first read, and once (decision 3): on a cluster in the store of `place`, if all machines see it.
        """

    def lend(self, node: Node, place: Callable[[], Any]) -> None:
        """Offer a store that tasks see to frames and rows of this process that a plan rests on, to be in."""

    def frame(self, node: Node, session: Any = None) -> Any:
        """Return the rows of a plan as a frame of a session (ours, if none is given), in any order."""

    def deliver(self, node: Node, want: Want, session: Callable[[], Any] | None) -> Sequence[Piece]:
        """Return the rows of a plan that runs on Spark, in order; it runs when the first is read."""

    def given(self, session: Any) -> Callable[[], Any]:
        """Return what returns a session that was handed in; one of a Spark that is too old is refused."""

    def session_of(self, given: Callable[[], Any] | None) -> Any:
        """Return the session that a plan runs in: one of ours, if none is given."""

    def count(self, node: Node, session: Callable[[], Any] | None) -> int:
        """Return how many rows a plan has on Spark."""

    def write(
        self,
        node: Node,
        session: Callable[[], Any] | None,
        function: Callable[[int, Iterator[pa.RecordBatch]], Written],
    ) -> list[Written]:
        """Hand the visible columns of a plan to a function in tasks; return what it returns, in order.

        Each task has a range of the rows, in their order, and its number. The function writes them and
        returns something small; it may run more than once for a range.
        """

    def write_whole(
        self,
        node: Node,
        session: Callable[[], Any] | None,
        folder: Path,
        function: Callable[[Iterator[pa.RecordBatch]], Written],
    ) -> Written | None:
        """Hand the visible columns of a plan, in order, to a function in one task, which sees a folder.

        None where this process is as near to the rows, or the machines of a cluster do not share the folder.
        The function returns something small; it may run more than once.
        """

    def advise(self, node: Node, session: Any) -> ChosenEngine:
        """Say where a plan is better computed, in this process or in a Spark that is at hand."""

    def travels(self, node: Node, session: Any) -> bool:
        """Say whether a plan is for the tasks of a session: they can read it, or it is more than is here."""

    def describe(self, node: Node) -> str:
        """Say what one step of a plan does on Spark, without its inputs."""

    def answer(
        self,
        session: Any,
        query: str,
        parameters: Mapping[str, object],
        tables: Mapping[str, Node],
        *,
        trusted: bool,
    ) -> Any:
        """Return the frame of a query over plans, parameters bound; errors are ours and say where.

        It may use these tables and what Spark has built in, unless it is trusted with everything.
        """


def engine() -> Engine:
    """Return the engine, or say what this machine lacks."""
    try:
        return cast("Engine", import_module("trueline.spark.views"))
    except ModuleNotFoundError as error:
        raise EnvironmentMissing(
            f"Spark is not installed here: {error}",
            remedy="pip install 'trueline[spark]', then `trueline doctor`",
        ) from error
