"""Whether the canonical queries that a chain records are those that its queries give (derive:V24).

What is run stands beside the definition, in an attachment. Whoever changes it there changes what the rows
are compared with, so the judge looks at the recorded queries again, once for each definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trueline.dataset.derivation import CANONICAL, Derivation
from trueline.workspace.derive.evaluate import query_session
from trueline.workspace.derive.input_tables import TableKind, tables_read
from trueline.workspace.derive.statements import check_steps, statements

if TYPE_CHECKING:
    from trueline.chain.head_state import Position
    from trueline.identity.dataset_id import DatasetId
    from trueline.view.view import View
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

_OF_A_FUNCTION: Final = "its function is not the one that its SetTransform names"
# Definitions that were found honest over inputs of some columns.
_honest: set[object] = set()
_MOST_HONEST: Final = 256


@dataclass(frozen=True, slots=True)
class StatementVerdict:
    """What is wrong with the queries that are run, or why that is unknown here; nothing if they are right."""

    wrong: str = ""
    unknown: str = ""


def judged_again(
    workspace: Workspace,
    derivation: Derivation,
    inputs: Mapping[str, Dataset],
    positions: Mapping[DatasetId, Position],
) -> StatementVerdict:
    """Judge the recorded queries over the inputs at some positions, and compare with what is recorded.

    Raises what says why the queries are refused, as `trueline.workspace.derive.judge` does.
    """
    if derivation.function is not None:
        return StatementVerdict("" if derivation.queries == (derivation.function.step,) else _OF_A_FUNCTION)
    if derivation.version != CANONICAL:
        return StatementVerdict(
            unknown=f"its canonical queries are of version {derivation.version}, here {CANONICAL}"
        )
    steps = [(step.alias or "", step.query) for step in derivation.queries]
    tables = tables_read([*(text for _, text in steps), *derivation.canonical], list(inputs))
    offsets = [table for table in tables if table.kind is TableKind.OFFSETS]
    statements(derivation, [table.name for table in tables])
    check_steps(steps, list(inputs), ordered=bool(offsets))
    views = {
        table.name: table.view(inputs[table.alias], positions[inputs[table.alias].id].block)
        for table in tables
    }
    about = derivation.queries, derivation.canonical, _columns(views)
    if about in _honest:
        return StatementVerdict()
    with query_session(workspace, views) as session:
        from trueline.spark.canonical import check_safe
        from trueline.workspace.derive.judge import judged_steps, with_offsets

        if session.hides_plans and derivation.reason.startswith(("operator:", "round_trip")):
            return StatementVerdict(
                unknown="its query is run as it was written, and Spark Connect shows no plan of it"
            )
        made = [each.canonical for each in judged_steps(with_offsets(session, inputs, offsets), steps, {})]
        names = [name for name, _ in steps]
        for at, (recorded, again) in enumerate(zip(derivation.canonical, made, strict=True)):
            if recorded == again:
                continue
            check_safe(session.session, recorded, [*views, *names[:at]])
            if not session.same(recorded, again):
                return StatementVerdict(
                    f"its canonical query is not what its query gives: {_shown(recorded, again)}"
                )
    if len(_honest) >= _MOST_HONEST:
        _honest.clear()
    _honest.add(about)
    return StatementVerdict()


def _columns(views: Mapping[str, View]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(view.schema.to_arrow())) for name, view in views.items())


def _shown(recorded: str, again: str) -> str:
    """Show where two texts part."""
    at = next(
        (at for at, (one, other) in enumerate(zip(recorded, again, strict=False)) if one != other),
        min(len(recorded), len(again)),
    )
    start = max(0, at - 20)
    return f"recorded {recorded[start : at + 40]!r}, given {again[start : at + 40]!r}"
