"""Views on Spark: one module for each verb that moves rows; importing this registers all of them."""

import trueline.spark.lowering.group_by
import trueline.spark.lowering.join
import trueline.spark.lowering.limit
import trueline.spark.lowering.rows
import trueline.spark.lowering.scan
import trueline.spark.lowering.sort
import trueline.spark.lowering.window
import trueline.spark.lowering.zip  # noqa: F401 (registered by importing)
from trueline.spark.lowering.dispatch import LoweringTarget, lowered

__all__ = ["LoweringTarget", "lowered"]
