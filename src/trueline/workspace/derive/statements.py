"""The statements of a definition, checked before each is run: those that are written, and those of chains.

A chain that was cloned says what is run when it is verified or pulled, and whoever wrote it may be anybody.
Spark runs a command as soon as it is given one, so what is not one query over the inputs never reaches it
(guard:G9). Spark's own parser looks once more, at what is made of these texts: see
`trueline.spark.canonical.result_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from trueline.errors import IrreproducibleQuery, UnsafeQuery
from trueline.workspace.derive.input_tables import EVENT_KINDS, InputTable, TableKind, events_named
from trueline.workspace.derive.reproducible import check_calls, check_reproducible
from trueline.workspace.query_guard import FUNCTIONS, check_query

if TYPE_CHECKING:
    from trueline.dataset.derivation import Derivation


def check_steps(queries: Iterable[tuple[str, str]], aliases: Sequence[str], *, ordered: bool) -> None:
    """Refuse named queries that reach for more than the inputs and the steps before them, or use chance.

    With `ordered` the rows of some input have an order.
    """
    kinds = (TableKind.ROWS, *EVENT_KINDS)
    possible = [InputTable(alias, kind).name for alias in aliases for kind in kinds]
    for name, text in queries:
        check_query(text, possible)
        check_reproducible(text, ordered=ordered or bool(events_named(text)))
        possible.append(name)


def statements(derivation: Derivation, tables: Iterable[str]) -> tuple[str, ...]:
    """Return the canonical queries of a definition, the result last; refuse what none of ours would be."""
    names = tuple(step.alias or "" for step in derivation.queries)
    try:
        _check(derivation.canonical, names, tuple(tables))
    except (UnsafeQuery, IrreproducibleQuery) as error:
        fields: dict[str, Any] = dict(error.fields)
        raise type(error)(
            f"a recorded query is not run: {error.problem}",
            remedy="restore the dataset from a copy, or define it again",
            code=error.code,
            **fields,
        ) from None
    return derivation.canonical


@lru_cache(maxsize=256)
def _check(texts: tuple[str, ...], names: tuple[str, ...], tables: tuple[str, ...]) -> None:
    """Check queries, each of which may read those before it; every increment asks for the same."""
    from trueline.spark.canonical import CANONICAL_NESTED
    from trueline.spark.exact_functions import HELPERS

    for at, text in enumerate(texts):
        check_query(text, [*tables, *names[:at]], HELPERS, CANONICAL_NESTED)
        check_calls(text, FUNCTIONS)
