"""The stories, one module for each room; importing them registers them."""

from tests.remedies.stories import cli, dataset, flow, readers, run, spark, view, workspace

__all__ = ["cli", "dataset", "flow", "readers", "run", "spark", "view", "workspace"]
