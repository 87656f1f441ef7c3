"""Running plans in this process: one module for each verb, named as in `plan/`; sources in `view/sources/`.

Importing this registers all of them.
"""

import trueline.view.execute.cache
import trueline.view.execute.concat
import trueline.view.execute.explode
import trueline.view.execute.filter
import trueline.view.execute.group_by
import trueline.view.execute.join
import trueline.view.execute.limit
import trueline.view.execute.on_spark
import trueline.view.execute.sample
import trueline.view.execute.select
import trueline.view.execute.shuffle
import trueline.view.execute.sort
import trueline.view.execute.window
import trueline.view.execute.with_columns
import trueline.view.execute.zip
import trueline.view.sources.files
import trueline.view.sources.memory
import trueline.view.sources.numbers
import trueline.view.sources.parquet
import trueline.view.sources.source_scan  # noqa: F401 (registered by importing)
from trueline.view.execute.dispatch import pieces, portable, row_count, serial

__all__ = ["pieces", "portable", "row_count", "serial"]
