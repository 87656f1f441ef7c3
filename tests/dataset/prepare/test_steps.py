"""The ready-made steps: what each does, and that it leaves alone what is right already."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trueline.dataset.prepare import enrich, mask, parse, repair, validate
from trueline.dataset.prepare.parse import load_steps
from trueline.errors import CheckFailed, InputError, SchemaError

SALES = pa.table({"id": [1, 2, 3], "city": ["Bern", " Basel", None], "price": [9.5, -1.0, None]})


@pytest.mark.parametrize(
    "step",
    [
        validate("id > 0"),
        repair(city="city", other="upper(other)"),
        mask("email", "phone", key="k"),
        enrich([{"zip": 1, "canton": "BE"}], on="zip"),
        enrich([{"id": 1, "city": "Thun"}], on="id"),
    ],
    ids=lambda step: step.name,
)
def test_rows_that_are_right_already_are_returned_as_they_are(step):
    table = SALES.set_column(1, "city", pa.array(["a", "b", "c"]))
    assert step.map("a.csv", table) is table


def test_a_broken_condition_says_which_how_often_and_where():
    with pytest.raises(CheckFailed) as refused:
        validate("id < 9", "price >= :least", least=0).map("a.csv", SALES)
    error = refused.value
    assert (error.path, error.condition, error.rows, error.first) == ("a.csv", "price >= :least", 1, 1)


def test_a_condition_without_an_answer_is_not_broken_and_broken_rows_can_be_dropped():
    kept = validate("price >= 0", "id < 3", drop=True).map("a.csv", SALES)
    assert kept["id"].to_pylist() == [1]
    assert validate("price >= 0", drop=True).map("a.csv", SALES)["id"].to_pylist() == [1, 3]


def test_what_is_no_condition_is_refused():
    with pytest.raises(InputError, match="not a condition"):
        validate("id + 1").map("a.csv", SALES)
    with pytest.raises(InputError, match="nothing to validate"):
        validate()


def test_repairs_see_the_row_as_it_came_and_keep_the_place_of_a_column():
    made = repair(city="trim(city)", price="abs(price) + length(city)").map("a.csv", SALES)
    assert made.column_names == SALES.column_names
    assert made["city"].to_pylist() == ["Bern", "Basel", None]
    assert made["price"].to_pylist() == [13.5, 7.0, None]


def test_a_hash_tells_values_apart_and_needs_the_same_key_to_be_the_same():
    table = pa.table({"email": ["a@b", "c@d", "a@b", None]})
    one, again = (mask("email", key="one").map("x", table)["email"].to_pylist() for _ in range(2))
    other = mask("email", key=b"other").map("x", table)["email"].to_pylist()
    assert one == again
    assert (one[0] == one[2] != one[1], one[3], len(one[0])) == (True, None, 32)
    assert not set(one[:3]) & set(other[:3])
    with pytest.raises(InputError) as refused:
        mask("email")
    assert refused.value.code == "NoKey"


@pytest.mark.parametrize(
    ("shown", "expected"), [(0, ["***", "***"]), (2, ["***89", "***"]), (9, ["***", "***"])]
)
def test_stars_never_show_a_whole_value(shown, expected):
    table = pa.table({"card": [456789, 12]})
    assert mask("card", how="stars", shown=shown).map("x", table)["card"].to_pylist() == expected


def test_a_column_can_be_emptied_and_keeps_its_type():
    made = mask("price", how="missing").map("x", SALES)
    assert (made["price"].null_count, made.schema.field("price").type) == (3, pa.float64())


def test_lookups_keep_rows_and_order_fill_gaps_and_match_several_columns():
    cities = pa.table({"city": ["Basel", "Bern"], "canton": ["BS", "BE"]})
    table = pa.table({"city": ["Bern", None, "Paris", "Basel"], "canton": [None, "XX", "FR", None]})
    made = enrich(cities, on="city").map("x", table)
    assert made["canton"].to_pylist() == ["BE", "XX", "FR", "BS"]
    lines = [{"a": 1, "b": "x", "c": 7}, {"a": 1, "b": "y", "c": 8}]
    both = enrich(lines, on=["a", "b"], columns=["c"]).map(
        "x", pa.table({"a": [1, 1, 2], "b": ["y", "x", "x"]})
    )
    assert both["c"].to_pylist() == [8, 7, None]


def test_a_lookup_that_is_no_lookup_is_refused():
    with pytest.raises(InputError) as refused:
        enrich([{"a": 1, "b": 1}, {"a": 1, "b": 2}], on="a")
    assert refused.value.code == "DuplicateKey"
    with pytest.raises(SchemaError, match="no column 'z'"):
        enrich([{"a": 1}], on="z")
    with pytest.raises(SchemaError, match="differ in type"):
        enrich([{"id": "one", "b": 1}], on="id").map("x", SALES)


# --- by name ------------------------------------------------------------------------------


@pytest.fixture
def cleaning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cleaning_steps.py").write_text(
        "from trueline.run import Step\n"
        "from trueline.dataset.prepare import parse, repair\n"
        "class Nothing(Step):\n"
        "    name = 'nothing'\n"
        "    def map(self, key, value):\n"
        "        return value\n"
        "def sliced(path, table):\n"
        "    return table.slice(1)\n"
        "trimmed = repair(city='trim(city)')\n"
        "everything = [parse(max_bad=3), trimmed, sliced]\n"
        "number = 7\n"
    )


def test_steps_are_found_by_name_in_the_current_folder(cleaning):
    found = load_steps(["cleaning_steps:Nothing", "cleaning_steps:sliced", "cleaning_steps:trimmed"])
    assert [step.name for step in found] == ["nothing", "sliced", "repair"]
    assert found[1].map("a.csv", SALES).num_rows == 2


def test_the_policy_for_bad_files_is_that_of_parsing(cleaning):
    found = load_steps(["cleaning_steps:everything"], "skip_key")
    assert [(step.name, step.on_error) for step in found][:2] == [
        ("parse", "skip_key"),
        ("repair", "fail_run"),
    ]
    assert found[0].max_bad == 3
    assert [step.name for step in load_steps([], "skip_key")] == ["parse"]
    assert load_steps([]) == []


@pytest.mark.parametrize(
    "name", ["nothing", "no_such_module:x", "cleaning_steps:none", "cleaning_steps:number", ":x"]
)
def test_what_names_no_step_is_refused(cleaning, name):
    with pytest.raises(InputError) as refused:
        load_steps([name])
    assert refused.value.code == "NoSuchStep"


def test_parsing_cannot_be_left_out_for_all():
    with pytest.raises(InputError, match="parse cannot be skipped"):
        parse(on_error="skip_step")
