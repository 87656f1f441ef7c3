from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chain.golden import vector
from tests.chain.histories import SYSTEM_COLUMNS, History, root, set_data_schema
from tests.chain.raw_schemas import bare
from tests.chain.records import data_types
from trueline.chain import Block
from trueline.chain import datatypes as t
from trueline.chain.events import SetDataSchema, SetVocab
from trueline.chain.schema import differences, schema_findings, show
from trueline.errors import ChainError

INT, TEXT = {"kind": "Int64"}, {"kind": "String"}


def column(kind: Any, name: str = "x", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind} | more


def optional(kind: Any) -> dict[str, Any]:
    return {"kind": "Option", "inner": kind}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "Struct", "fields": list(fields)}


def items(kind: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "List", "itemType": kind} | more


def wrappers() -> dict[str, Any]:
    """Ways to put a struct of columns somewhere inside a column."""
    return {
        "struct": struct,
        "optional struct": lambda *fields: optional(struct(*fields)),
        "list of struct": lambda *fields: items(struct(*fields)),
        "list of optional struct": lambda *fields: optional(items(optional(struct(*fields)))),
        "struct in struct": lambda *fields: struct(column(struct(*fields), "inner")),
        "fixed list in list": lambda *fields: items(items(struct(*fields), fixedLength=3)),
    }


ALLOWED = {
    "a note": ([column(INT)], [column(INT, extra={"example.org/unit": "m"})]),
    "another note": (
        [column(INT, extra={"example.org/unit": "m"})],
        [column(INT, extra={"example.org/unit": "km"})],
    ),
    "a new optional column": ([column(INT)], [column(INT), column(optional(TEXT), "y")]),
    "a new column of nothing": ([column(INT)], [column(INT), column({"kind": "Null"}, "y")]),
    "a new column in the middle": (
        [column(INT), column(TEXT, "z")],
        [column(INT), column(optional(TEXT), "y"), column(TEXT, "z")],
    ),
    "another order": ([column(INT), column(TEXT, "y")], [column(TEXT, "y"), column(INT)]),
}
REFUSED = {
    "a column less": ([column(INT), column(TEXT, "y")], [column(INT)], ("y", "removed")),
    "another name": ([column(INT)], [column(INT, "y")], ("x", "removed")),
    "another case": ([column(INT)], [column(INT, "X")], ("x", "removed")),
    "a new required column": ([column(INT)], [column(INT), column(TEXT, "y")], ("y", "optional")),
    "another type": ([column(INT)], [column(TEXT)], ("x", "Int64", "String")),
    "a wider type": ([column({"kind": "Int32"})], [column(INT)], ("Int32", "Int64")),
    "optional at last": ([column(INT)], [column(optional(INT))], ("Int64", "optional Int64")),
    "required at last": ([column(optional(INT))], [column(INT)], ("optional Int64", "Int64")),
    "optional twice": ([column(optional(INT))], [column(optional(optional(INT)))], ("optional",)),
    "another unit": (
        [column({"kind": "Timestamp"})],
        [column({"kind": "Timestamp", "unit": "Second"})],
        ("Millisecond", "Second"),
    ),
    "another zone": (
        [column({"kind": "Timestamp"})],
        [column({"kind": "Timestamp", "timezone": "CET"})],
        ("UTC", "CET"),
    ),
    "another precision": (
        [column({"kind": "Decimal", "precision": 9, "scale": 2})],
        [column({"kind": "Decimal", "precision": 10, "scale": 2})],
        ("Decimal(9, 2)", "Decimal(10, 2)"),
    ),
    "another length": (
        [column({"kind": "Binary", "fixedLength": 4})],
        [column({"kind": "Binary"})],
        ("Binary(4)", "Binary"),
    ),
    "another list": ([column(items(INT))], [column(items(TEXT))], ("Int64", "String")),
    "optional items": ([column(items(INT))], [column(items(optional(INT)))], ("Int64", "optional")),
    "a longer list": (
        [column(items(INT, fixedLength=2))],
        [column(items(INT, fixedLength=3))],
        ("[2]", "[3]"),
    ),
    "a map of other values": (
        [column({"kind": "Map", "keyType": TEXT, "valueType": INT})],
        [column({"kind": "Map", "keyType": TEXT, "valueType": TEXT})],
        ("Map<String, Int64>", "Map<String, String>"),
    ),
    "the same column twice": ([column(INT)], [column(INT), column(INT)], ("x", "twice")),
    "a column twice": (
        [column(INT)],
        [column(INT), column(optional(TEXT), "y"), column(optional(INT), "y")],
        ("y", "twice"),
    ),
}
inside = pytest.mark.parametrize("wrap", [None, *wrappers().values()], ids=["columns", *wrappers()])


def grown(fields: list[dict[str, Any]], wrap: Any) -> dict[str, Any]:
    return set_data_schema(*(fields if wrap is None else [column(wrap(*fields), "outer")]))


@pytest.mark.contract("chain:H2")
@inside
@pytest.mark.parametrize("case", ALLOWED.values(), ids=ALLOWED)
def test_a_schema_may_grow(case, wrap):
    before, after = case
    History("Root", grown(before, wrap), grown(after, wrap))


@pytest.mark.contract("chain:H2")
@inside
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_schema_may_not_change_what_was_written(case, wrap):
    before, after, holds = case
    history = History("Root", grown(before, wrap))
    error = history.refuses(history.block(grown(after, wrap)), "chain:H2", holds=holds)
    if wrap is not None:
        assert "outer" in error.problem


@pytest.mark.contract("chain:H2")
def test_a_first_schema_names_each_column_once():
    history = History()
    twice = set_data_schema(column(INT), column(TEXT))
    history.refuses(history.block(twice), "chain:H2", holds=("x", "twice"))
    history.append(set_data_schema(column(INT), column(TEXT, "y")))


@pytest.mark.contract("chain:H2")
@pytest.mark.parametrize("side", ["keyType", "valueType"])
def test_a_struct_in_a_map_names_each_member_once(side):
    history = History()
    twice = {"kind": "Map", "keyType": TEXT, "valueType": INT, side: struct(column(INT), column(TEXT))}
    history.refuses(history.block(set_data_schema(column(twice, "outer"))), "chain:H2", holds=("outer", "x"))


@pytest.mark.contract("chain:H2")
def test_a_schema_is_held_against_the_newest_not_the_first():
    history = root(set_data_schema(column(optional(INT))), {"kind": "SetInfo", "description": "between"})
    history.refuses(history.block(set_data_schema()), "chain:H2", holds=("x",))


@pytest.mark.contract("chain:H1")
def test_a_note_makes_a_schema_another_one():
    history = root()
    noted = set_data_schema()
    noted["schema"]["extra"] = {"example.org/about": "x"}
    history.append(noted)
    history.refuses(history.block(noted), "chain:H1")


# --- the deprecated form ----------------------------------------------------------

RAW = vector("serde_set_data_schema_legacy", 2).block["event"]["rawArrowSchema"]


def test_the_raw_form_may_be_followed_by_the_present_one_with_or_without_its_optionality():
    for kinds in ((INT, TEXT), (optional(INT), optional(TEXT))):
        block = Block.from_dict(vector("serde_set_data_schema_legacy", 2).block)
        columns = tuple(
            Block.from_dict(
                {
                    "systemTime": "2026-01-01T00:00:00Z",
                    "sequenceNumber": 0,
                    "event": {
                        "kind": "SetDataSchema",
                        "schema": {"fields": [column(kinds[0], "a"), column({"kind": "Bool"}, "b")]},
                    },
                }
            ).event.schema.fields
        )
        after = SetDataSchema(None, t.DataSchema(columns))
        found = [rule for rule, _, _ in schema_findings(block.event, after, SetVocab())]
        assert "H1" not in found
        assert "H2" not in found


@pytest.mark.contract("chain:H2")
def test_between_two_raw_schemas_optionality_counts():
    before, after = (
        SetDataSchema(
            bare(pa.schema([pa.field("a", pa.int64(), nullable=nullable)]).serialize().to_pybytes())
        )
        for nullable in (False, True)
    )
    found = {rule: problem for rule, problem, _ in schema_findings(before, after, SetVocab())}
    assert "optional Int64" in found["H2"]


@pytest.mark.contract("chain:H2")
@pytest.mark.parametrize("raw", ["", "AAAA", "/////wAAAAA=", RAW[:-40], "AAAAAAAAAAAAAAAAAAAAAA=="])
def test_a_raw_schema_that_cannot_be_read_is_a_finding_not_an_accident(raw):
    history = History()
    block = history.block({"kind": "SetDataSchema", "rawArrowSchema": raw})
    for strict in (True, False):
        with pytest.raises(ChainError) as caught:
            history.chain.append(block, strict=strict)
        assert caught.value.rule == "chain:H2"
        assert caught.value.code == "InvalidEvent"
    assert history.chain.tail().sequence_number == 0


def test_a_raw_schema_is_accepted_from_elsewhere():
    history = History()
    done = history.append({"kind": "SetDataSchema", "rawArrowSchema": RAW}, strict=False)
    assert {finding.rule for finding in done.findings} == {"chain:H3"}


# --- properties -------------------------------------------------------------------


def fields(*kinds: Any) -> tuple[t.DataField, ...]:
    return tuple(t.DataField(f"c{index}", kind) for index, kind in enumerate(kinds))


def unambiguous(kind: Any) -> bool:
    """Whether no struct in it names a member twice."""
    if isinstance(kind, t.Struct):
        names = [field.name for field in kind.fields]
        return len(set(names)) == len(names) and all(unambiguous(field.type) for field in kind.fields)
    inner = [getattr(kind, name, None) for name in ("item_type", "inner", "key_type", "value_type")]
    return all(unambiguous(part) for part in inner if part is not None)


plain_types = data_types.filter(unambiguous)


@given(st.lists(plain_types, max_size=4))
def test_nothing_changed_is_no_difference(kinds):
    columns = fields(*kinds)
    assert list(differences(columns, columns, "")) == []
    assert list(differences(columns, columns[::-1], "")) == []


@given(plain_types, plain_types)
def test_two_types_without_structs_differ_exactly_if_they_are_not_equal(old, new):
    found = list(differences(fields(old), fields(new), ""))
    if "Struct" in show(old) or "Struct" in show(new):
        assert old != new or not found
    else:
        assert bool(found) == (old != new)
    assert all("c0" in difference for difference in found)


@given(plain_types)
def test_every_type_can_be_shown(kind):
    assert show(kind)
    assert show(t.Option(kind)) == f"optional {show(kind)}"


@given(plain_types)
def test_a_column_added_is_accepted_only_if_it_may_be_missing(kind):
    found = list(differences((), fields(kind), ""))
    assert bool(found) == (not isinstance(kind, t.Option | t.Null))


@pytest.mark.contract("chain:H3")
@pytest.mark.parametrize("place", range(4))
def test_each_system_column_is_asked_for(place):
    history = History()
    without = [name for index, name in enumerate(SYSTEM_COLUMNS) if index != place]
    wrong = [{**SYSTEM_COLUMNS[place], "type": TEXT}, *without]
    for columns in (without, wrong):
        history.refuses(
            history.block(set_data_schema(system=columns)), "chain:H3", holds=(SYSTEM_COLUMNS[place]["name"],)
        )


@pytest.mark.contract("chain:H3")
@pytest.mark.parametrize(
    "kind", [{"kind": "Date"}, optional({"kind": "Date"}), {"kind": "Timestamp", "unit": "Second"}]
)
def test_event_time_may_be_a_day_or_a_moment_and_missing(kind):
    History("Root", set_data_schema(system=[*SYSTEM_COLUMNS[:3], column(kind, "event_time")]))


@pytest.mark.contract("chain:H3")
@pytest.mark.parametrize("place", range(3))
def test_only_event_time_may_be_missing(place):
    history = History()
    columns = list(SYSTEM_COLUMNS)
    columns[place] = column(optional(columns[place]["type"]), columns[place]["name"])
    history.refuses(history.block(set_data_schema(system=columns)), "chain:H3", holds=("optional",))


@pytest.mark.contract("chain:H3")
def test_an_optional_event_time_is_still_a_time():
    history = History()
    for kind in (optional(TEXT), optional(optional({"kind": "Date"}))):
        columns = [*SYSTEM_COLUMNS[:3], column(kind, "event_time")]
        history.refuses(history.block(set_data_schema(system=columns)), "chain:H3", holds=("event_time",))
