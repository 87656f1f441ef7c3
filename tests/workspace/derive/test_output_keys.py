"""Keys that a query alone proves."""

from __future__ import annotations

import pytest

from trueline.workspace.derive.output_keys import proven_key
from trueline.workspace.derive.spark_sql import parsed, qualified

TABLES = {
    "t": {"id": "bigint", "x": "double", "s": "string", "l": "array<int>"},
    "u": {"x": "double", "s": "string"},
}
KEYS = {"t": ("id",), "u": ("x",)}


def key(text):
    return proven_key(
        qualified(parsed(text), {name: dict(columns) for name, columns in TABLES.items()}), TABLES, KEYS
    )


@pytest.mark.contract("derive:V6")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("select id, s from t where x > 1", ("id",)),
        ("select s, id as nr from t", ("nr",)),
        ("select s, count(*) as n from t group by s", ("s",)),
        ("select upper(s) as w, count(*) as n from t group by upper(s)", ("w",)),
        ("select distinct s, x from t", ("s", "x")),
        ("select s from t union select s from u", ("s",)),
        ("select 'a' as w, id from t union all select 'b', id from t", ("w", "id")),
        ("select t.id, e.p from t lateral view posexplode(l) e as p, v", ("id", "p")),
        ("with a as (select s, max(x) as m from t group by s) select m, s from a", ("s",)),
        ("select n from (select id as n, s from t) where s = 'x'", ("n",)),
        ("select count(*) as n, max(x) as m from t", ("n",)),
        ("select id, row_number() over (order by x) as r from t", ("id",)),
    ],
)
def test_proven(text, found):
    assert key(text) == found


@pytest.mark.contract("derive:V6")
@pytest.mark.parametrize(
    "text",
    [
        "select s from t",
        "select id + 1 as n from t",
        "select count(*) as n from t group by s",
        "select length(s) as n, count(*) as c from t group by s",
        "select s, count(*) as n from t group by rollup (s)",
        "select s, x, count(*) as n from t group by grouping sets ((s), (x))",
        "select t.id from t join u on t.s = u.s",
        "select id, explode(l) as v from t",
        "select t.id, e.v from t lateral view explode(l) e as v",
        "select t.id, e.v from t lateral view posexplode(l) e as p, v",
        "select id from t union all select id from t",
        "select 1 as w, id from t union all select 1, id from t",
        "select '1' as w, id from t union all select 1, id from t",
        "select x from u",
        "with t as (select s as id from u) select id from t",
    ],
)
def test_not_proven(text):
    assert key(text) is None
