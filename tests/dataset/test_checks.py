"""Checks of roots: judged on the rows of a commit; they stop it, leave rows out, or count them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from trueline import check
from trueline.errors import CheckFailed, DatasetExists, DataWarning, InputError, SchemaError

pytestmark = pytest.mark.filterwarnings("ignore::trueline.errors.DataWarning")


@pytest.fixture
def ws(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as workspace:
        yield workspace


def sales(workspace, *checks, merge=None):
    return workspace.create("sales", merge=merge, checks=checks)


def table(ids, prices):
    return pa.table({"id": pa.array(ids, pa.int64()), "price": pa.array(prices, pa.float64())})


@pytest.mark.contract("derive:V22")
@pytest.mark.parametrize(
    ("checks", "rows", "count"),
    [
        ([check.not_null("id", "price")], table([1, None, 3], [1, 2, None]), 2),
        ([check.in_range("price", 0, 10)], table([1, 2, 3, 4], [0, 10, 11, None]), 2),
        ([check.in_range("price", at_most=10)], table([1, 2], [-5, 11]), 1),
        ([check.expression("price > id")], table([1, 2, 3], [2, 2, None]), 2),
        ([check.unique("id")], table([1, 2, 1, 1], [1, 1, 1, 1]), 2),
        ([check.row_count(at_least=3)], table([1, 2], [1, 1]), 2),
        ([check.row_count(at_most=1)], table([1, 2], [1, 1]), 2),
    ],
    ids=lambda given: str(given[0]) if isinstance(given, list) else "",
)
def test_a_check_that_stops_leaves_no_trace_and_one_that_warns_counts(ws, checks, rows, count):
    dataset = sales(ws, *checks)
    head = dataset.head
    with pytest.raises(CheckFailed, match="nothing was committed to 'sales'") as caught:
        dataset.append(rows)
    assert caught.value.fields["rows"] == count
    assert caught.value.fields["condition"] == str(checks[0])
    assert dataset.head == head
    assert dataset.info.rows == 0
    ws.delete("sales")
    dataset = sales(ws, *(each.warn() for each in checks))
    with pytest.warns(DataWarning, match="rows break"):
        commit = dataset.append(rows)
    assert commit.rows == rows.num_rows
    assert commit.checks == {str(checks[0].warn()): count}
    assert dataset.commit(commit.short).checks == commit.checks
    assert dataset.verify().ok


@pytest.mark.parametrize("merge", [None, tl.merge.upsert("id")], ids=str)
def test_rows_that_break_a_check_are_left_out_and_counted(ws, merge):
    wanted = [check.not_null("price").quarantine(), check.in_range("price", 0).quarantine()]
    dataset = sales(ws, *wanted, merge=merge)
    commit = dataset.append(table([1, 2, 3, 4], [1, None, -1, 4]))
    assert commit.checks == {str(wanted[0]): 1, str(wanted[1]): 1}
    assert dataset.view().to_arrow()["id"].to_pylist() == [1, 4]
    assert dataset.append(table([5], [5])).checks == {}


def test_files_are_checked_where_they_were_read(ws, tmp_path):
    (tmp_path / "a.csv").write_text("id,price\n1,5\n2,-5\n")
    dataset = sales(ws, check.in_range("price", 0).quarantine())
    assert dataset.append(tmp_path / "a.csv").checks == {"in_range('price', at_least=0).quarantine()": 1}
    assert dataset.view().to_arrow()["id"].to_pylist() == [1]


def test_only_rows_that_are_current_after_a_commit_are_judged(ws):
    dataset = sales(ws, check.in_range("price", 0), merge=tl.merge.snapshot("id"))
    dataset.append(table([1, 2], [1, 2]))
    dataset.append(table([1], [3]))
    assert dataset.info.rows == 1
    with pytest.raises(CheckFailed):
        dataset.append(table([1], [-1]))


def test_values_are_unique_among_all_current_rows(ws):
    dataset = sales(ws, check.unique("price"), merge=tl.merge.upsert("id"))
    dataset.append(table([1, 2], [1, 2]))
    with pytest.raises(CheckFailed):
        dataset.append(table([3], [2]))
    # Two rows exchange their values: afterwards each is there once.
    dataset.append(table([1, 2], [2, 1]))
    plain = ws.create("plain", checks=[check.unique("id")])
    plain.append(table([1], [1]))
    with pytest.raises(CheckFailed):
        plain.append(table([1], [2]))


def test_values_are_those_of_another_dataset(ws):
    people = ws.create("people")
    people.append([{"id": 1}, {"id": 2}])
    dataset = ws.create("sales", checks=[check.relation("buyer", "people", "id")])
    dataset.append([{"buyer": 2}, {"buyer": 2}])
    with pytest.raises(CheckFailed, match="1 rows break relation"):
        dataset.append([{"buyer": 1}, {"buyer": 3}])
    people.append([{"id": 3}])
    assert dataset.append([{"buyer": 3}]).rows == 1


def test_checks_are_part_of_the_definition(ws):
    dataset = sales(ws, check.not_null("id"))
    assert sales(ws, check.not_null("id")) is dataset
    with pytest.raises(DatasetExists, match="checks: it is"):
        sales(ws, check.not_null("id").warn())
    ws.create("sales", checks=[check.not_null("id").warn()], on_change="from_here")
    assert dataset.append(table([None], [1])).checks == {"not_null('id').warn()": 1}


def test_a_check_that_cannot_be_judged_is_refused_at_definition(ws):
    schema = pa.schema({"id": pa.int64()})
    for wrong, error in (
        (check.not_null("idd"), SchemaError),
        (check.expression("id +"), InputError),
        (check.expression("id + 1"), InputError),
        (check.relation("id", "nobody"), InputError),
        (check.max_age("soon"), InputError),
        ("id > 0", InputError),
    ):
        with pytest.raises(error):
            ws.create("sales", schema=schema, checks=[wrong])
        assert "sales" not in ws
    for make in (
        lambda: check.unique("id").quarantine(),
        check.not_null,
        lambda: check.in_range("id"),
        lambda: check.in_range("id", True),
        lambda: check.expression(" "),
    ):
        with pytest.raises(InputError):
            make()
