"""Checks of roots: judged on the rows of a commit; they stop it, leave rows out, or count them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.by_hand import advance, change, define
from trueline import check
from trueline.chain.block import commit_record
from trueline.dataset import key_counts
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
    with pytest.warns(DataWarning, match="rows? break"):
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


def test_offsets_of_files_are_those_of_the_rows_that_they_gave(ws, tmp_path):
    for name, text in (("a", "1,5\n2,-5\n"), ("b", "3,-5\n"), ("c", "4,5\n5,5\n")):
        (tmp_path / f"{name}.csv").write_text(f"id,price\n{text}")
    dataset = sales(ws, check.in_range("price", 0).quarantine())
    commit = dataset.append([tmp_path / f"{name}.csv" for name in "abc"])
    noted = commit_record(dataset.chain.block(commit.block)).notes["files"]
    assert [(file["rows"], file.get("offsets")) for file in noted] == [
        (1, [0, 0]),
        (0, None),
        (2, [1, 2]),
    ]


def test_columns_that_files_lack_are_those_of_their_own_rows(ws, tmp_path):
    (tmp_path / "a.csv").write_text("id,price,name\n1,-1,one\n2,-1,two\n3,3,three\n")
    (tmp_path / "b.csv").write_text("id,price\n4,5\n5,5\n")
    dataset = sales(ws, check.in_range("price", 0).quarantine(), merge=tl.merge.upsert("id"))
    dataset.append([{"id": 4, "price": 1, "name": "four"}, {"id": 5, "price": 1, "name": "five"}])
    dataset.append([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert {row["id"]: row["name"] for row in dataset.view().to_arrow().to_pylist()} == {
        3: "three",
        4: "four",
        5: "five",
    }


def events(ops, ids, prices):
    return table(ids, prices).append_column("op", pa.array(ops, pa.int32()))


@pytest.mark.contract("derive:V22")
@pytest.mark.parametrize("merge", [tl.merge.upsert("id"), tl.merge.changelog("id")], ids=str)
def test_a_delete_is_not_a_row_that_could_break_a_check(ws, merge):
    dataset = sales(ws, check.not_null("price").quarantine(), merge=merge)
    dataset.append(events([0, 0], [1, 2], [1, 2]))
    commit = dataset.append(events([1, 0], [1, 3], [None, None]))
    assert commit.checks == {"not_null('price').quarantine()": 1}
    assert dataset.view().to_arrow()["id"].to_pylist() == [2]


def test_a_correction_is_left_out_as_a_whole_and_judged_by_what_it_sets(ws):
    dataset = sales(ws, merge=tl.merge.changelog("id"))
    dataset.append(events([0, 0, 0], [1, 2, 3], [-1, 2, 3]))
    ws.create(
        "sales",
        merge=tl.merge.changelog("id"),
        checks=[check.in_range("price", 0).quarantine()],
        on_change="from_here",
    )
    # What goes breaks the check and is not judged; the halves of a pair need not be neighbours.
    commit = dataset.append(events([2, 2, 3, 3, 1], [1, 2, 1, 2, 3], [-1, 2, 10, -20, -3]))
    assert commit.checks == {"in_range('price', at_least=0).quarantine()": 1}
    assert dataset.view().to_arrow().to_pylist() == [{"id": 1, "price": 10}, {"id": 2, "price": 2}]
    assert dataset.verify().ok


@pytest.mark.contract("derive:V22")
def test_a_row_that_was_left_out_goes_without_being_counted(ws):
    columns = pa.schema({"id": pa.int64(), "price": pa.float64()})
    wanted = check.not_null("price").quarantine()
    dataset = define(ws, "derived", columns, ("id",), checks=[wanted])
    assert advance(ws, dataset, table([1, 2], [None, 2])).checks == {str(wanted): 1}
    # Recomputed, the corrected result breaks nothing.
    assert change(ws, dataset, events([1, 0], [1, 1], [None, 5])).checks == {}
    assert dataset.view().to_arrow().to_pylist() == [{"id": 1, "price": 5}, {"id": 2, "price": 2}]
    assert change(ws, dataset, events([1, 0], [2, 2], [2, None])).checks == {str(wanted): 1}
    assert change(ws, dataset, events([1], [2], [None])).checks == {}
    assert dataset.view().to_arrow()["id"].to_pylist() == [1]


def test_only_rows_that_are_current_after_a_commit_are_judged(ws):
    dataset = sales(ws, check.in_range("price", 0), merge=tl.merge.snapshot("id"))
    dataset.append(table([1, 2], [1, 2]))
    dataset.append(table([1], [3]))
    assert dataset.info.rows == 1
    with pytest.raises(CheckFailed):
        dataset.append(table([1], [-1]))


@pytest.fixture(params=[False, True], ids=["at once", "in passes"])
def little_memory(request, monkeypatch):
    """Also with so little memory that the keys of every commit are looked at in several passes."""
    if request.param:
        monkeypatch.setattr(key_counts, "KEY_BYTES", 8)


@pytest.mark.usefixtures("little_memory")
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


@pytest.mark.contract("derive:V22")
@pytest.mark.usefixtures("little_memory")
def test_a_row_that_came_again_is_not_unique_whichever_commit_brought_it(ws):
    columns = pa.schema({"id": pa.int64(), "price": pa.float64()})
    dataset = define(ws, "bag", columns, checks=[check.unique("id")])
    advance(ws, dataset, table([1, 2], [1, 2]))
    head = dataset.head
    for repeated in (table([1, 1, 2], [1, 1, 2]), table([1, 1, 2], [1, 9, 2])):
        with pytest.raises(CheckFailed, match="1 row breaks unique"):
            advance(ws, dataset, repeated)
        assert dataset.head == head
    # The row that goes makes room for another.
    advance(ws, dataset, table([1, 2], [9, 2]))
    warned = define(ws, "warned", columns, checks=[check.unique("id").warn()])
    advance(ws, warned, table([1, 1, 2], [1, 1, 2]))
    assert advance(ws, warned, table([1, 1, 1, 2], [1, 1, 1, 2])).checks == {"unique('id').warn()": 2}
    # Of three copies one goes: what is left is judged no more than what was not touched.
    assert advance(ws, warned, table([1, 1, 2], [1, 1, 2])).checks == {}


@pytest.mark.usefixtures("little_memory")
def test_values_are_those_of_another_dataset(ws):
    people = ws.create("people")
    people.append([{"id": 1}, {"id": 2}])
    dataset = ws.create("sales", checks=[check.relation("buyer", "people", "id")])
    dataset.append([{"buyer": 2}, {"buyer": 2}])
    with pytest.raises(CheckFailed, match="1 row breaks relation"):
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
