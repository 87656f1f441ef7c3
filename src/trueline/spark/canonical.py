"""Where canonical queries run: a session with our settings and the functions of exact sums."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from trueline.spark.engines import engine_of
from trueline.spark.errors import translated
from trueline.spark.exact_functions import HELPERS, register
from trueline.spark.plans import PlanNode, check_sql, plan_roots
from trueline.spark.settings import SQL_SETTINGS
from trueline.workspace.derive.plan_part import PlanPart
from trueline.workspace.query_guard import MOST_NESTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Not for what is read: what a query may mean in another session.
_PINNED = {**SQL_SETTINGS, "spark.sql.runSQLOnFiles": "false"}
# A canonical query has brackets of its own around those that were written.
CANONICAL_NESTED: Final = 2 * MOST_NESTED
# Texts that were found safe over some tables, here or on Connect: increments run the same again and again.
_safe: dict[tuple[str, frozenset[str], bool], None] = {}
_MOST_SAFE: Final = 256
# The functions of each version of Spark that was asked.
_functions: dict[str, frozenset[str]] = {}
_IDENTITY: Final = re.compile(r'"id":\d+,')
_NUMBERED: Final = re.compile(r"#\d+L?")
# Names of columns: Spark does not tell large letters from small ones.
_NAME: Final = re.compile(r'"name":"(?:[^"\\]|\\.)*"')
_NAMED: Final = re.compile(r"\w+(?=#\d)")
# Spark names what it computes once by a counter of its own, which goes on from query to query.
_COMMON: Final = re.compile(r"_common_expr_\d+")


def prepare(session: SparkSession) -> None:
    """Make a session of ours ready for canonical queries."""
    with translated():
        for name, value in _PINNED.items():
            session.conf.set(name, value)
        register(session)


# --- what Spark makes of a query ------------------------------------------------------------------


def types_of(session: SparkSession, query: str) -> dict[str, str]:
    """Return the columns of a query with Spark's names of their types; nothing is computed."""
    with translated(query):
        return {field.name: field.dataType.simpleString() for field in session.sql(query).schema.fields}


def same_meaning(session: SparkSession, one: str, other: str) -> bool:
    """Say whether two queries have the same optimised plan, whatever names their parts have."""
    with translated():
        if engine_of(session).is_connect:
            return _explained(session, one) == _explained(session, other)
        first, second = (
            session.sql(text)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 (no public way)
            for text in (one, other)
        )
        # A table that is read twice has other identities each time, so a plan need not equal itself.
        return bool(first.canonicalized().equals(second.canonicalized())) or _told(first) == _told(second)


def _told(plan: Any) -> str:
    """Return a plan as text, its expressions numbered from the first; a cross join is an inner one."""
    numbers: dict[str, str] = {}
    text = _COMMON.sub("_common_expr", str(plan.toJSON()).replace("plans.Cross$", "plans.Inner$"))
    text = _NAME.sub(lambda found: found.group().lower(), text)
    return _IDENTITY.sub(lambda found: numbers.setdefault(found.group(), f'"id":{len(numbers)},'), text)


def _explained(session: SparkSession, query: str) -> str:
    """Return the optimised plan as text, its expressions numbered from the first."""
    from contextlib import redirect_stdout
    from io import StringIO

    shown = StringIO()
    with redirect_stdout(shown):
        session.sql(query).explain(mode="extended")
    plan = shown.getvalue().partition("== Optimized Logical Plan ==")[2].partition("== Physical")[0]
    numbers: dict[str, str] = {}
    plan = _COMMON.sub("_common_expr", plan)
    plan = _NAMED.sub(lambda found: found.group().lower(), plan)
    return _NUMBERED.sub(lambda found: numbers.setdefault(found.group(), f"#{len(numbers)}"), plan)


def analysed(session: SparkSession, query: str) -> tuple[list[tuple[str, str]], PlanPart | None]:
    """Return the columns of a query with their types, and its plan down to its tables if it is seen."""
    with translated(query):
        frame = session.sql(query)
        columns = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
    if engine_of(session).is_connect:
        return columns, None
    plan: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    roots = [_part(root) for root in plan_roots(json.loads(plan.toJSON()))]
    return columns, PlanPart("Query", True, tuple(roots))


def _part(node: PlanNode) -> PlanPart:
    package, _, name = node.kind.rpartition(".")
    is_plan = "plans.logical" in package or "catalyst.analysis" in package or "execution" in package
    inner: list[PlanPart] = []
    if name != "View":  # a table of ours: what it is made of is not the query's
        inner += [_part(child) for child in node.children]
        for field, value in node.fields.items():
            if field != "output" or name == "Generate":
                inner += [_part(root) for root in plan_roots(value)]
    kind, value = node.fields.get("dataType"), node.fields.get("value")
    return PlanPart(
        name,
        is_plan,
        tuple(inner),
        kind if isinstance(kind, str) else "" if kind is None else json.dumps(kind),
        value if isinstance(value, str) else "",
    )


def function_names(session: SparkSession) -> frozenset[str]:
    """Return the names of the functions that Spark brings; a version of it brings the same to all."""
    version = session.version
    if version not in _functions:
        with translated():
            found = [row[0] for row in session.sql("SHOW SYSTEM FUNCTIONS").collect()]
        _functions[version] = frozenset(str(name).lower() for name in found)
    return _functions[version]


# --- results --------------------------------------------------------------------------------------


def result_of(
    session: SparkSession, tables: Collection[str], steps: Mapping[str, str], last: str
) -> DataFrame:
    """Return the frame of the last query; earlier steps are tables of it by their names.

    The text may be what somebody else recorded, and a command is run as soon as Spark is given it.
    """
    known = set(tables)
    for name, text in steps.items():
        check_safe(session, text, known)
        with translated(text):
            session.sql(text).createOrReplaceTempView(f"`{name.replace('`', '``')}`")
        known.add(name)
    check_safe(session, last, known)
    with translated(last):
        return session.sql(last)


def check_safe(session: SparkSession, text: str, tables: Collection[str]) -> None:
    """Refuse what is not one query over tables, by Spark's own parser; functions of ours may be called."""
    about = text, frozenset(tables), engine_of(session).is_connect
    if about in _safe:
        return
    with translated(text):
        check_sql(session, text, tables, HELPERS, CANONICAL_NESTED)
    if len(_safe) >= _MOST_SAFE:
        _safe.clear()
    _safe[about] = None


def numbered(frame: DataFrame, name: str) -> DataFrame:
    """Number equal rows in a column, so that each has an identity; which has which number is all the same."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    columns = [f.col(f"`{column.replace('`', '``')}`") for column in frame.columns]
    return frame.withColumn(name, f.row_number().over(Window.partitionBy(*columns).orderBy(columns[0])))


def differing_rows(one: DataFrame, other: DataFrame, most: int = 3) -> list[dict[str, Any]]:
    """Return the first rows that one of two frames has and the other has not, or not as often."""
    with translated():
        found = [*one.exceptAll(other).limit(most).collect(), *other.exceptAll(one).limit(most).collect()]
    return [row.asDict() for row in found]


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
