"""Every method that takes a commit takes every form of `at`."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyarrow import csv

from trueline.chain.instant import Instant

# Later than the creation, which has the time of the system.
DAYS = ("2101-01-02", "2101-01-03", "2101-01-04")


@pytest.fixture
def made(ws):
    """A dataset with rows of three days."""
    ds = ws.create("trades")
    for day, rows in zip(DAYS, ([0, 1], [2, 3, 4], [5]), strict=True):
        ws.clock = lambda day=day: Instant.parse(f"{day}T12:00:00Z")
        ds.append(pa.table({"x": rows}))
    return ds


def commits(ds):
    return list(ds.log())[::-1]


FORMS = {
    "commit": lambda c: c,
    "hash": lambda c: c.block,
    "text of the hash": lambda c: str(c.block),
    "beginning of the hash": lambda c: str(c.block)[:20],
    "beginning without the prefix": lambda c: str(c.block)[5:17],
    "short form": lambda c: c.short,
    "offset": lambda c: c.offsets[-1],
    "text of the offset": lambda c: f"offset:{c.offsets[-1]}",
    "datetime": lambda c: datetime.fromtimestamp(int(c.system_time) / 1e9, UTC),
    "instant": lambda c: c.system_time,
    "text of the moment": lambda c: str(c.system_time),
    "day": lambda c: date.fromisoformat(str(c.system_time)[:10]),
    "text of the day": lambda c: str(c.system_time)[:10],
    "tag": lambda _: "monthly",
}

METHODS = {
    "view": lambda ds, at, _: ds.view(at).to_arrow()["x"].to_pylist(),
    "columns": lambda ds, at, _: [column.name for column in ds.stored_columns(at=at)],
    "get": lambda ds, at, _: ds.get({"x": 4}, at),
    "changes after": lambda ds, at, _: ds.changes(after=at).to_arrow()["x"].to_pylist(),
    "changes upto": lambda ds, at, _: ds.changes(upto=at).to_arrow()["x"].to_pylist(),
    "diff from": lambda ds, at, _: ds.diff(at).to_arrow()["x"].to_pylist(),
    "diff to": lambda ds, at, _: ds.diff(commits(ds)[1], at).to_arrow()["x"].to_pylist(),
    "export": lambda ds, at, path: (ds.export(path, at), csv.read_csv(path)["x"].to_pylist())[1],
    "log": lambda ds, at, _: next(ds.log(at)).block,
    "blocks": lambda ds, at, _: next(ds.blocks(at))[0],
    "commit": lambda ds, at, _: ds.commit(at).block,
    "verify after": lambda ds, at, _: (ds.verify(after=at).ok, ds.verify(after=at).blocks),
    "verify upto": lambda ds, at, _: (ds.verify(upto=at).ok, ds.verify(upto=at).objects),
    "drop_data": lambda ds, at, _: ds.drop_data(upto=at, reason="asked").rows,
}

# What each answers for the second of the three commits, and for the newest.
ANSWERS = {
    "view": ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]),
    "columns": (["x"], ["x"]),
    "get": ({"x": 4}, {"x": 4}),
    "changes after": ([5], []),
    "changes upto": ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]),
    "diff from": ([5], []),
    "diff to": ([2, 3, 4], [2, 3, 4, 5]),
    "export": ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]),
    "log": (2, 3),
    "blocks": (2, 3),
    "commit": (2, 3),
    "verify after": ((True, 1), (True, 0)),
    "verify upto": ((True, 2), (True, 3)),
    "drop_data": (5, 6),
}


def answer(ds, method, which):
    found = ANSWERS[method][which]
    return commits(ds)[found].block if method in ("log", "blocks", "commit") else found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_every_form(made, tmp_path, method, form):
    second = commits(made)[2]
    made.chain.store.move_head(second.block, expected=None, ref="monthly")
    expected = answer(made, method, 0)
    assert METHODS[method](made, FORMS[form](second), tmp_path / "rows.csv") == expected


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_the_head(made, tmp_path, method):
    expected = answer(made, method, 1)
    assert METHODS[method](made, "head", tmp_path / "rows.csv") == expected
    assert made.commit() == commits(made)[-1]
