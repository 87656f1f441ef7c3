"""Functions that tests compute datasets by."""

from __future__ import annotations


def totals(transfers):
    return transfers.groupBy("account").agg({"amount": "max"}).withColumnRenamed("max(amount)", "largest")


def by_place(transfers):
    from pyspark.sql import functions as f

    return transfers.select("id", f.spark_partition_id().alias("place"))


def number(transfers):
    return 3


def of_two(transfers, other):
    return transfers.join(other, "id")
