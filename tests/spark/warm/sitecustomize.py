"""What Python runs first where this folder is on its path: Spark's daemons load what their workers need.

Spark forks a worker, which then loads pandas, pyarrow and our package: a second of a processor for each, and
every plan that reads or writes by `format("trueline")` starts some. A fork of what has them begins at once.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from importlib import import_module

LOADED = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "trueline.spark.lowering",
    "trueline.spark.source",
    "trueline.spark.workers",
    "trueline.spark.writer",
    "trueline.workspace",
)

if "pyspark.daemon" in sys.orig_argv:
    for name in LOADED:
        # There may be another package of our name, planted to be refused.
        with suppress(Exception):
            import_module(name)
    gc.freeze()
