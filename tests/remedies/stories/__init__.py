"""The stories, one module for each room; importing them registers them."""

from tests.remedies.stories import (
    chain,
    cli,
    dataset,
    derive,
    expressions,
    flow,
    incoming,
    readers,
    run,
    snapshot,
    spark,
    tables,
    view,
    workspace,
)

__all__ = [
    "chain",
    "cli",
    "dataset",
    "derive",
    "expressions",
    "flow",
    "incoming",
    "readers",
    "run",
    "snapshot",
    "spark",
    "tables",
    "view",
    "workspace",
]
