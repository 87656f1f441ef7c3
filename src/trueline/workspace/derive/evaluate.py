"""Evaluating a definition: its canonical queries over its inputs, each as it is at one position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from trueline.dataset.derivation import CANONICAL, COPY, Derivation, FunctionOf, KeyKind
from trueline.kernel.power_sums import ESCAPED
from trueline.view.engine import engine
from trueline.workspace.derive.exact import widened
from trueline.workspace.derive.statements import statements

if TYPE_CHECKING:
    from trueline.chain.head_state import Tail
    from trueline.chain.store.scratch import Scratch
    from trueline.dataset.append.incoming import Incoming
    from trueline.kernel.tasks import Tasks
    from trueline.view.view import View
    from trueline.workspace.derive.canonical import OffsetTable
    from trueline.workspace.workspace import Workspace


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class QuerySession:
    """A session of Spark in which the inputs of a definition are tables, of these columns.

    `may_call` is the one function that may be called over them; `offsets` are tables with the rows of others
    and their offsets.
    """

    session: Any
    tables: Mapping[str, Mapping[str, str]]
    may_call: FunctionOf | None = None
    offsets: Mapping[str, OffsetTable] = field(default_factory=dict)

    @property
    def hides_plans(self) -> bool:
        """Whether Spark's plans cannot be seen, as on Connect."""
        from trueline.spark.engines import engine_of

        return engine_of(self.session).is_connect

    def types(self, query: str) -> Mapping[str, str]:
        """Return the columns of a query with the types they have."""
        from trueline.spark.canonical import types_of

        return types_of(self.session, query)

    def same(self, one: str, other: str) -> bool:
        """Say whether two queries mean the same to Spark."""
        from trueline.spark.canonical import same_meaning

        return same_meaning(self.session, one, other)

    def with_step(self, name: str, query: str) -> QuerySession:
        """Return the session with one more table: what a step gives, which later steps read by its name."""
        from trueline.spark.canonical import result_of

        frame = result_of(self.session, self.tables, {name: query}, query)
        columns = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        return replace(self, tables={**self.tables, name: columns})

    def operators(self, query: str) -> set[str] | None:
        """Return the names of the nodes of Spark's plan of a query; None where they cannot be seen."""
        from trueline.spark.plans import operators_of

        return operators_of(self.session, query)

    def result(self, derivation: Derivation, wide: bool = False) -> Any:
        """Return the frame of a definition, with the number of the copy where rows are a bag.

        With `wide` its sums have room for every double: see `with_room`.
        """
        from trueline.spark.canonical import numbered, result_of

        if derivation.function is not None:
            from trueline.workspace.derive.function import result_of_function

            return result_of_function(self, derivation)
        texts = statements(derivation, self.tables)
        *steps, last = map(widened, texts) if wide else texts
        names = [step.alias or "" for step in derivation.queries[:-1]]
        frame = result_of(self.session, self.tables, dict(zip(names, steps, strict=True)), last)
        return numbered(frame, COPY) if derivation.identity is KeyKind.BAG else frame


def engine_versions(workspace: Workspace) -> dict[str, str]:
    """Return the versions that an answer may depend on: of canonical queries, Spark, Java, time zones."""
    from trueline.spark.canonical import versions_of

    return {"canonical": CANONICAL, **versions_of(workspace._spark.session())}


def with_room(work: Callable[[bool], _Result]) -> _Result:
    """Do work in which a canonical query is run; once more, wide, if a number needs that.

    Both forms give the same bits where both answer, so what comes out does not depend on which was run.
    """
    try:
        return work(False)
    except Exception as error:
        if ESCAPED not in str(error):
            raise
    return work(True)


def taken(
    workspace: Workspace, session: QuerySession, derivation: Derivation, tail: Tail, scratch: Scratch
) -> tuple[Incoming, Tasks]:
    """Compute the result of a definition as rows for a tail; return them, and what handles them."""
    from trueline.dataset.append.frames import take_frame

    def take(wide: bool) -> tuple[Incoming, Tasks]:
        frame = session.result(derivation, wide)
        tasks = workspace._spark.tasks_for(frame)
        return take_frame(frame, tail, scratch, tasks), tasks

    return with_room(take)


@contextmanager
def query_session(
    workspace: Workspace, views: Mapping[str, View], may_call: FunctionOf | None = None
) -> Iterator[QuerySession]:
    """Open a session of its own with views as tables; it is given back at the end.

    Of functions only `may_call` can be called there: see `trueline.workspace.derive.function.permitted`.
    """
    from trueline.spark.canonical import prepare

    room = workspace._spark.first
    session = room.new_session()
    tables: dict[str, Mapping[str, str]] = {}
    try:
        prepare(session)
        for name, view in views.items():
            frame = engine().frame(view.node, session)
            frame.createOrReplaceTempView(f"`{name.replace('`', '``')}`")
            tables[name] = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        yield QuerySession(session, tables, may_call)
    finally:
        room.release(session)
