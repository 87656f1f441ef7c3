"""Functions that tests compute datasets by."""

from __future__ import annotations

import os
from pathlib import Path


def totals(transfers):
    return transfers.groupBy("account").agg({"amount": "max"}).withColumnRenamed("max(amount)", "largest")


def by_place(transfers):
    from pyspark.sql import functions as f

    return transfers.select("id", f.spark_partition_id().alias("place"))


def places(transfers):
    from pyspark.sql import functions as f

    return transfers.select("id", f.lit(0).alias("place"))


def number(transfers):
    return 3


def of_two(transfers, other):
    return transfers.join(other, "id")


def zeros(transfers):
    """Equal numbers in another form wherever rows lie, in columns, lists and structs."""
    from pyspark.sql import functions as f

    zero = f.when(f.spark_partition_id() % 2 == 0, f.lit(-0.0)).otherwise(f.lit(0.0))
    of_one = f.struct(zero.alias("z"))
    return transfers.select("id", zero.alias("zero"), f.array(zero).alias("l"), of_one.alias("s"))


def stalled(transfers):
    """Wait at a pipe that the environment names, if it does: say so at the first, stay at the second."""
    gate, never = os.environ.get("STALLED_AT", ":").split(":")

    def rows(batches):
        for batch in batches:
            if gate:
                with Path(gate).open("w"):
                    pass
                with Path(never).open():
                    pass
            yield batch

    return transfers.select("id", "amount").mapInArrow(rows, "id bigint, amount double")
