"""Where canonical queries run: a session with our settings and the functions of exact sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from trueline.spark.errors import translated
from trueline.spark.settings import SQL_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Not for what is read: what a query may mean in another session.
_PINNED = {**SQL_SETTINGS, "spark.sql.runSQLOnFiles": "false"}


def prepare(session: SparkSession, functions: Sequence[str]) -> None:
    """Make a session of ours ready for canonical queries."""
    with translated():
        for name, value in _PINNED.items():
            session.conf.set(name, value)
        for function in functions:
            session.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {function}")


def types_of(session: SparkSession, query: str) -> dict[str, str]:
    """Return the columns of a query with Spark's names of their types; nothing is computed."""
    with translated(query):
        return {field.name: field.dataType.simpleString() for field in session.sql(query).schema.fields}


def same_meaning(session: SparkSession, one: str, other: str) -> bool:
    """Say whether two queries have the same optimised plan, whatever names their parts have."""
    with translated():
        first, second = (
            session.sql(text)._jdf.queryExecution().optimizedPlan().canonicalized()  # noqa: SLF001
            for text in (one, other)
        )
        return bool(first.equals(second))


def result_of(session: SparkSession, steps: Mapping[str, str], last: str) -> DataFrame:
    """Return the frame of the last query; earlier steps are tables of it by their names."""
    for name, text in steps.items():
        with translated(text):
            session.sql(text).createOrReplaceTempView(f"`{name.replace('`', '``')}`")
    with translated(last):
        return session.sql(last)


def numbered(frame: DataFrame, name: str) -> DataFrame:
    """Number equal rows in a column, so that each has an identity; which has which number is all the same."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    columns = [f.col(f"`{column.replace('`', '``')}`") for column in frame.columns]
    return frame.withColumn(name, f.row_number().over(Window.partitionBy(*columns).orderBy(columns[0])))


# By application: what its Java says of itself takes a job to ask.
_JAVA: dict[str, tuple[str, str]] = {}
_ASK_JAVA: Final = """select java_method('java.lang.System', 'getProperty', 'java.version'),
    java_method('java.time.zone.ZoneRulesProvider', 'getVersions', 'UTC')"""


def versions_of(session: SparkSession) -> dict[str, str]:
    """Return the versions that the answer of a query may depend on: of Spark, Java and its time zones."""
    with translated():
        application = session.conf.get("spark.app.id", "") or ""
        if application not in _JAVA:
            (row,) = session.sql(_ASK_JAVA).collect()
            # The rules of a zone by version: `{2026a=ZoneRules[…]}`.
            _JAVA[application] = str(row[0]), str(row[1]).strip("{}").partition("=")[0]
        java, zones = _JAVA[application]
        return {"spark": session.version, "java": java, "tzdata": zones}
