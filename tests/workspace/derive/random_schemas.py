"""Random tables, histories of them, and queries that fit: with what is odd about values of each type."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

import trueline as tl

MOST = (1 << 63) - 1
# Values of a type; None is among them. What cancels, and infinities, other engines do not add as we do.
POOLS = {
    "text": (pa.string(), ["a", "b", "", "ä", "B"]),
    "small": (pa.int32(), [0, 1, -7, (1 << 31) - 1]),
    "whole": (pa.int64(), [0, 1, 2, -3, 1 << 57, -(1 << 57)]),
    "double": (pa.float64(), [0.1, 0.25, -3.5, 0.0, -0.0, math.nan]),
    "wild": (pa.float64(), [0.1, 1e15, -1e15, 5e-324, 1e308, -0.0, 0.0, math.nan, math.inf, -math.inf]),
    "float": (pa.float32(), [0.5, -1.25, 0.0, -0.0]),
    "money": (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-3.10"), Decimal("0.00")]),
    "truth": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [date(2026, 1, 1), date(2026, 2, 28), date(1969, 12, 31)]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 1, 1, tzinfo=UTC), datetime(1960, 5, 5, tzinfo=UTC)],
    ),
}
NUMBERS = ("small", "whole", "double", "wild", "float", "money")
# Of these the group of the greatest numbers is made, which overflow on the way if they are added in another
# order; no other row is in that group.
RESERVED = {"text": "edge", "small": 77, "double": 7.75, "truth": None, "day": date(2030, 1, 1)}
MERGES = ("append", "ledger", "upsert", "changelog", "snapshot")


@dataclass(frozen=True, slots=True)
class RandomQuery:
    """A query with its key; `duckdb` says whether another engine gives the same answer.

    `strategy` is how it has to be followed, if that is known.
    """

    sql: str
    key: tuple[str, ...] | None
    duckdb: bool = True
    strategy: str | None = None


@dataclass
class RandomTable:
    """A table of random columns, in a dataset with a random history.

    Without `edges` it has no group of the greatest numbers; `key_kind` is the type of `k`, if not any.
    """

    random_: random.Random
    name: str = "t"
    edges: bool = True
    key_kind: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    merge: str = ""
    moments: int = 0

    def __post_init__(self) -> None:
        pick = self.random_
        self.merge = pick.choice(MERGES)
        self.columns = {"k": self.key_kind or pick.choice(list(RESERVED)), "w": "whole"}
        for at in range(pick.randint(1, 3)):
            self.columns[f"v{at}"] = pick.choice(list(POOLS))
        self.timed = pick.random() < 0.5

    @property
    def schema(self) -> pa.Schema:
        fields = {"id": pa.int64(), **{name: POOLS[kind][0] for name, kind in self.columns.items()}}
        return pa.schema({**fields, **({"at": pa.timestamp("ms", "UTC")} if self.timed else {})})

    def create(self, workspace: tl.Workspace) -> tl.Dataset:
        """Make the dataset; it has no rows yet."""
        strategy = tl.merge.append() if self.merge == "append" else getattr(tl.merge, self.merge)("id")
        more = {"event_time": "at"} if self.timed else {}
        return workspace.create(self.name, schema=self.schema, merge=strategy, **more)

    # --- history ----------------------------------------------------------------------------------

    def row(self, number: int) -> dict:
        found = {"id": number}
        for name, kind in self.columns.items():
            values = POOLS[kind][1]
            found[name] = None if self.random_.random() < 0.15 else self.random_.choice(values)
        if self.timed:
            # Some are late: before the watermark of a commit that was there.
            found["at"] = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=self.random_.randint(-50, 50))
        return found

    def edge(self) -> list[dict]:
        """Three rows whose total is the greatest number."""
        reserved = RESERVED[self.columns["k"]]
        if reserved is None:
            return []
        # Whatever a query filters by takes all of them, or none.
        shared = {**self.row(100), "k": reserved}
        return [{**shared, "id": 100 + at, "w": number} for at, number in enumerate((MOST, 1, -1))]

    def next_commit(self, dataset: tl.Dataset) -> None:
        """Append once more: new rows, known ones, ones that go and come back, or none."""
        pick = self.random_
        there = {row["id"]: row for row in dataset.view().to_arrow().to_pylist()}
        given = [self.row(number) for number in pick.sample(range(25), pick.randint(0, 8))]
        if self.edges and pick.random() < 0.4 and not {100, 101, 102} & set(there):
            given += self.edge()
        more = {"watermark": datetime(2026, 1, 1 + self.moments, tzinfo=UTC)} if self.timed else {}
        self.moments += 1
        if self.merge == "snapshot":
            kept = [row for number, row in there.items() if number >= 100 or pick.random() < 0.7]
            given = list({row["id"]: row for row in (*kept, *given)}.values())
            dataset.append(self._table(given or list(there.values())), **more)
            return
        if self.merge in ("append", "ledger"):
            # Of a ledger a known id is a duplicate; appended twice it is two rows.
            known = [row for row in there.values() if row["id"] < 100][:2]
            rows = [*given, *known] if self.merge == "ledger" else [*given, *given[:1]]
            dataset.append(
                self._table([row for row in rows if self.merge == "ledger" or row["id"] < 100]), **more
            )
            return
        events = []
        for row in given:
            gone = row["id"] in there and row["id"] < 100 and pick.random() < 0.4
            if self.merge == "upsert" or gone:
                events.append({**row, "op": int(gone)})
            elif row["id"] in there:
                events += [{**there[row["id"]], "op": 2}, {**row, "op": 3}]
            else:
                events.append({**row, "op": 0})
        dataset.append(self._table(events, with_op=True), **more)

    def _table(self, found: list[dict], *, with_op: bool = False) -> pa.Table:
        schema = self.schema.append(pa.field("op", pa.int32())) if with_op else self.schema
        return pa.Table.from_pylist(found, schema)

    # --- queries ----------------------------------------------------------------------------------

    @property
    def is_keyed(self) -> bool:
        return self.merge != "append"

    def queries(self, count: int) -> dict[str, RandomQuery]:
        """Return some queries over the table, by name."""
        makers = [
            self._mapped,
            self._grouped,
            self._grouped,
            self._distinct,
            self._whole,
            self._union,
            self._window,
        ]
        return {f"q{at}": self.random_.choice(makers)() for at in range(count)}

    def _values(self) -> list[str]:
        return [name for name in self.columns if name != "k"]

    def _is_tame(self, *names: str) -> bool:
        return not any(self.columns[name] == "wild" for name in names)

    def _condition(self) -> str:
        name = self.random_.choice(self._values())
        kind = self.columns[name]
        if kind in NUMBERS:
            return f"{name} > 0"
        return f"{name} is not null" if kind != "truth" else f"({name} or {name} is null)"

    def _mapped(self) -> RandomQuery:
        name = self.random_.choice(self._values())
        doubled = f"{name} * 2" if self.columns[name] in ("double", "wild", "float") else name
        # Twice the greatest double is not one that other engines give.
        text = f"select id, k, {doubled} as y from t where {self._condition()}"
        return RandomQuery(text, ("id",) if self.is_keyed else None, self._is_tame(name))

    def _aggregates(self) -> tuple[str, bool]:
        found, tame = ["count(*) as n"], True
        for name in self._values():
            kind = self.columns[name]
            if kind in NUMBERS:
                found.append(f"sum({name}) as s_{name}")
                tame = tame and self._is_tame(name)
            if kind in ("double", "wild", "float", "small"):
                found.append(f"avg({name}) as a_{name}")
            if kind == "truth":
                found.append(f"bool_and({name}) as e_{name}")
            pick = self.random_.choice(
                [
                    "count({0}) as c_{0}",
                    "min({0}) as l_{0}",
                    "max({0}) as h_{0}",
                    "count(distinct {0}) as d_{0}",
                ]
            )
            found.append(pick.format(name))
        return ", ".join(found), tame

    def _grouped(self) -> RandomQuery:
        text, tame = self._aggregates()
        having = " having count(*) > 1" if self.random_.random() < 0.4 else ""
        where = f" where {self._condition()}" if self.random_.random() < 0.4 else ""
        # Without its other rows the group of the greatest numbers would be too large.
        where = where.replace(" where w > 0", "")
        return RandomQuery(f"select k, {text} from t{where} group by k{having}", ("k",), tame)

    def _distinct(self) -> RandomQuery:
        return RandomQuery(f"select distinct k, {self.random_.choice(self._values())} as y from t", None)

    def _whole(self) -> RandomQuery:
        values = [name for name in self._values() if self.columns[name] in NUMBERS and name != "w"]
        sums = "".join(f", sum({name}) as s_{name}" for name in values)
        return RandomQuery(
            f"select count(*) as n, count(distinct k) as d{sums} from t", None, self._is_tame(*values)
        )

    def _union(self) -> RandomQuery:
        one, other = self._condition(), self._condition()
        text = (
            f"select 'a' as b, k, w from t where {one} union all select 'b' as b, k, w from t where {other}"
        )
        return RandomQuery(text, None)

    def _window(self) -> RandomQuery:
        if not self.is_keyed:
            return self._distinct()
        text = "select id, k, row_number() over (partition by k order by w, id) as r from t"
        # Nulls are sorted first by Spark, last by others.
        return RandomQuery(text, ("id",), duckdb=False)


@dataclass
class RandomPair:
    """Two tables whose `k` and `w` have the same types; queries over both, and over their results."""

    t: RandomTable
    u: RandomTable

    @classmethod
    def of(cls, random_: random.Random) -> RandomPair:
        t = RandomTable(random_)
        # Of two groups of the greatest numbers the total would be too large.
        return cls(t, RandomTable(random_, "u", edges=False, key_kind=t.columns["k"]))

    @property
    def is_keyed(self) -> bool:
        return self.t.is_keyed and self.u.is_keyed

    def queries(self, name: str, kind: str) -> dict[str, RandomQuery]:
        """Return a query of a kind, after those that it reads."""
        return getattr(self, f"_{kind}")(name)

    def _union(self, name: str) -> dict[str, RandomQuery]:
        text = " union all ".join(
            f"select '{each.name}' as b, id, k, w from {each.name} where {each._condition()}"
            for each in (self.t, self.u)
        )
        key = ("b", "id") if self.is_keyed else None
        return {name: RandomQuery(text, key, strategy="stateless")}

    def _grouped(self, name: str) -> dict[str, RandomQuery]:
        values = "count(*) as n, sum(w) as s, min(w) as l, max(w) as h, count(distinct w) as d"
        both = "select k, w from t union all select k, w from u"
        return {name: RandomQuery(f"select k, {values} from ({both}) group by k", ("k",))}

    def _joined(self, name: str) -> dict[str, RandomQuery]:
        side = self.t.random_.choice(["join", "left join"])
        text = f"select t.id as i, u.id as j, t.k, t.w as x, u.w as y from t {side} u on t.k = u.k"
        return {name: RandomQuery(text, ("i", "j") if self.is_keyed else None, strategy="recompute")}

    def _counted(self, name: str) -> dict[str, RandomQuery]:
        text = "select t.k, count(*) as n, max(u.w) as h from t join u on t.k = u.k group by t.k"
        return {name: RandomQuery(text, ("k",), strategy="recompute")}

    def _stacked(self, name: str) -> dict[str, RandomQuery]:
        shown = {"union": "sum(id) as v, max(w) as h", "grouped": "sum(n) as v, max(s) as h"}
        shown["joined"] = "sum(j) as v, min(x) as h"
        kind = self.t.random_.choice(list(shown))
        below = self.queries(f"{name}_below", kind)
        text = f"select k, count(*) as n, {shown[kind]} from {name}_below group by k"
        return {**below, name: RandomQuery(text, ("k",), strategy="keyed")}


# What a pair of tables is asked.
PAIRED = ("union", "grouped", "joined", "counted", "stacked")
