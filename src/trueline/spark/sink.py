"""Where a streaming query puts its batches: each becomes one commit, once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from trueline.errors import InputError
from trueline.spark.options import absolute
from trueline.workspace import open as open_workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["sink"]

_QUERY: Final = "sql.streaming.queryId"


def sink(
    workspace: str | os.PathLike[str], dataset: str, *, name: str | None = None, **options: Any
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that appends every batch exactly once.

    A batch is known by the query and its number: `spark/<query>/<batch>` is the idempotency key of its
    commit. The query is its id, which the checkpoint keeps, or the `name` given here (needed on Connect).
    `options` are those of `trueline.open`, for a workspace in an object store.
    """
    if name is not None:
        key_of_batch(name, 0)
    path = absolute(os.fspath(workspace))
    with open_workspace(path, **options) as found:
        _ = found[dataset]  # a query should not start for a dataset that does not exist

    def append(batch: DataFrame, batch_id: int) -> None:
        key = key_of_batch(_query_of(batch) if name is None else name, batch_id)
        with open_workspace(path, **options) as opened:
            target = opened[dataset]
            # The id of a query goes with its checkpoint, so the batch is the same one: no need to compute it.
            if name is None and target.chain.token(key) is not None:
                return
            target.append(batch, idempotency_key=key)

    return append


def key_of_batch(query: str, batch: int) -> str:
    """Return the idempotency key of a batch; a query is known by its id or by a name that was given to it.

    >>> key_of_batch("orders", 7)
    'spark/orders/7'
    """
    if not query or "/" in query:
        raise InputError(
            f"the name of the query, {query!r:.80}, is empty or has a /",
            remedy="give a name without /",
            code="BadName",
        )
    return f"spark/{query}/{batch}"


def _query_of(batch: Any) -> str:
    """Return the id of the query that a batch belongs to; it stays the same over restarts."""
    context = getattr(batch.sparkSession, "_sc", None)
    found = context.getLocalProperty(_QUERY) if context is not None else None
    if not found:
        raise InputError(
            "the batch does not say which query it belongs to",
            remedy="give the sink a name of its own: sink(workspace, dataset, name=…)",
            code="NoQuery",
        )
    return str(found)
