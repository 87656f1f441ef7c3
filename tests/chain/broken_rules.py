"""One story per chain rule: a valid chain, a next event that breaks the rule, and the same event mended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.chain.histories import (
    ABSENT,
    SYSTEM_COLUMNS,
    History,
    add_data,
    dataset_id,
    derivative,
    digest,
    execute,
    moment,
    polling_source,
    push_source,
    root,
    seed,
    set_data_schema,
    set_transform,
    sql,
    taken,
)

Event = dict[str, Any]


@dataclass(frozen=True)
class Broken:
    """A history, what breaks it, what would have been right, and the values the message must hold."""

    history: History
    bad: Event
    good: Event
    holds: tuple[object, ...] = ()
    bad_header: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Story:
    rule: str
    name: str
    tell: Callable[[], Broken]


STORIES: list[Story] = []


def breaks(rule: str) -> Callable[[Callable[[], Broken]], Callable[[], Broken]]:
    """Register a story of a broken rule."""

    def register(tell: Callable[[], Broken]) -> Callable[[], Broken]:
        STORIES.append(Story(f"chain:{rule}", tell.__name__, tell))
        return tell

    return register


INFO = {"kind": "SetInfo", "description": "about"}
OPTIONAL = {"name": "x", "type": {"kind": "Option", "inner": "String"}}
REQUIRED = {"name": "x", "type": "String"}
A_TO_B = {"prev_block": "a1", "prev_offset": 9}


# --- links --------------------------------------------------------------------


@breaks("C1")
def a_chain_begins_with_something_else() -> Broken:
    return Broken(History(empty=True), INFO, seed(), ("Seed", "SetInfo"))


@breaks("C1")
def a_block_does_not_say_what_it_follows() -> Broken:
    return Broken(root(), INFO, INFO, ("Seed", "SetInfo"), {"prevBlockHash": ABSENT, "sequenceNumber": 0})


@breaks("C2")
def a_seed_follows_a_block() -> Broken:
    history = root()
    return Broken(history, seed(), INFO, ("Seed", history.head))


@breaks("C2")
def a_second_seed_begins_the_chain_anew() -> Broken:
    history = root()
    header = {"prevBlockHash": ABSENT, "sequenceNumber": 0}
    return Broken(history, seed(label="other"), INFO, ("Seed", history.head), header)


@breaks("C2")
def a_seed_names_a_block_before_it() -> Broken:
    nowhere = digest("nowhere")
    return Broken(History(empty=True), seed(), seed(), ("Seed", nowhere), {"prevBlockHash": nowhere})


@breaks("C3")
def the_first_number_is_not_zero() -> Broken:
    return Broken(History(empty=True), seed(), seed(), ("zero", 5), {"sequenceNumber": 5})


@breaks("C4")
def a_number_is_left_out() -> Broken:
    history = root()
    return Broken(history, INFO, INFO, (history.head, "number 1", "number 3"), {"sequenceNumber": 3})


@breaks("C4")
def a_number_is_used_twice() -> Broken:
    return Broken(root(), INFO, INFO, ("number 1",), {"sequenceNumber": 1})


@breaks("C4")
def a_number_begins_again() -> Broken:
    return Broken(root(), INFO, INFO, ("number 1", "number 0"), {"sequenceNumber": 0})


@breaks("C5")
def the_block_before_is_unknown() -> Broken:
    history = root()
    nowhere = digest("nowhere")
    return Broken(history, INFO, INFO, (nowhere, history.head), {"prevBlockHash": nowhere})


@breaks("C5")
def the_chain_is_empty_but_a_block_follows_something() -> Broken:
    nowhere = digest("nowhere")
    header = {"prevBlockHash": nowhere, "sequenceNumber": 7}
    return Broken(History(empty=True), INFO, seed(), (nowhere, "empty"), header)


@breaks("C6")
def the_clock_goes_back() -> Broken:
    earlier = moment(0.5)
    return Broken(root(), INFO, INFO, (earlier, moment(1)), {"systemTime": earlier})


# --- data ---------------------------------------------------------------------

AT_9 = add_data((0, 9), watermark=10)


@breaks("D1")
def a_slice_leaves_a_gap() -> Broken:
    bad, good = (add_data((start, 19), prev=9, watermark=10) for start in (11, 10))
    return Broken(root(AT_9), bad, good, (10, 11))


@breaks("D1")
def a_slice_overlaps_the_one_before() -> Broken:
    bad, good = (add_data((start, 19), prev=9, watermark=10) for start in (9, 10))
    return Broken(root(AT_9), bad, good, (10, 9))


@breaks("D1")
def the_first_slice_does_not_start_at_zero() -> Broken:
    return Broken(root(), add_data((1, 9)), add_data((0, 9)), (0, 1))


@breaks("D1")
def a_slice_of_a_transform_leaves_a_gap() -> Broken:
    bad, good = (execute(taken("a", None, "a1", None, 9), data=(start, 19)) for start in (3, 0))
    return Broken(derivative("a"), bad, good, (0, 3))


@breaks("D2")
def a_slice_ends_before_it_starts() -> Broken:
    bad, good = (add_data((10, end), prev=9, watermark=10) for end in (9, 10))
    return Broken(root(AT_9), bad, good, (10, 9))


@breaks("D2")
def a_slice_ends_beyond_what_a_column_of_offsets_can_hold() -> Broken:
    bad, good = (add_data((0, end)) for end in (1 << 63, (1 << 63) - 1))
    return Broken(root(), bad, good, (1 << 63,))


@breaks("D3")
def the_carried_offset_is_behind() -> Broken:
    history = root(AT_9, add_data((10, 19), prev=9, watermark=10))
    bad = add_data((10, 29), prev=9, watermark=10)
    return Broken(history, bad, add_data((20, 29), prev=19, watermark=10), (9, 19))


@breaks("D3")
def the_carried_offset_is_forgotten() -> Broken:
    bad = add_data(watermark=20)
    return Broken(root(AT_9), bad, add_data(prev=9, watermark=20), (9, None))


@breaks("D3")
def the_carried_offset_is_not_that_of_an_event_without_data() -> Broken:
    history = root(AT_9, add_data(prev=9, watermark=11))
    return Broken(
        history, add_data(prev=8, watermark=12), add_data(prev=9, watermark=12), ("prevOffset 8", "9")
    )


@breaks("D3")
def a_transform_carries_another_offset() -> Broken:
    history = derivative("a", events=(execute(taken("a", None, "a1", None, 9), data=(0, 4)),))
    bad, good = (execute(taken("a", "a1", "a2", 9, 19), data=(prev + 1, 8), prev=prev) for prev in (5, 4))
    return Broken(history, bad, good, (5, 4))


@breaks("D4")
def the_watermark_is_dropped() -> Broken:
    return Broken(
        root(AT_9),
        add_data((10, 19), prev=9),
        add_data((10, 19), prev=9, watermark=10),
        (moment(10), "dropped"),
    )


@breaks("D5")
def the_watermark_goes_back() -> Broken:
    bad, good = (add_data((10, 19), prev=9, watermark=at) for at in (9, 10))
    return Broken(root(AT_9), bad, good, (moment(9), moment(10)))


@breaks("D5")
def the_watermark_of_a_transform_goes_back() -> Broken:
    history = derivative("a", events=(execute(taken("a", None, "a1", None, 9), watermark=10),))
    bad, good = (execute(taken("a", "a1", "a2", 9, 19), watermark=at) for at in (9, 10))
    return Broken(history, bad, good, (moment(9), moment(10)))


@breaks("D6")
def data_comes_before_a_schema() -> Broken:
    return Broken(History(), add_data((0, 9), watermark=1), add_data(watermark=1), ("SetDataSchema",))


@breaks("D7")
def an_event_starts_from_another_checkpoint() -> Broken:
    history = root(add_data((0, 9), leaves="c1"))
    bad, good = (add_data((10, 19), prev=9, was=was, leaves="c2") for was in ("c0", "c1"))
    return Broken(history, bad, good, (digest("c0"), digest("c1")))


@breaks("D7")
def an_event_forgets_the_checkpoint() -> Broken:
    history = root(add_data((0, 9), leaves="c1"))
    bad = add_data((10, 19), prev=9, leaves="c2")
    good = add_data((10, 19), prev=9, was="c1", leaves="c2")
    return Broken(history, bad, good, (None, digest("c1")))


@breaks("D7")
def an_event_starts_from_a_checkpoint_where_none_is() -> Broken:
    return Broken(
        root(AT_9),
        add_data((10, 19), prev=9, watermark=10, was="c1"),
        add_data((10, 19), prev=9, watermark=10),
        (digest("c1"), None),
    )


@breaks("D8")
def an_event_says_nothing() -> Broken:
    return Broken(root(), add_data(), add_data(watermark=1), ("empty",))


@breaks("D9")
def an_event_repeats_everything() -> Broken:
    history = root(add_data((0, 9), watermark=10, leaves="c1", state="s1"))
    same = {"prev": 9, "was": "c1"}
    return Broken(
        history,
        add_data(watermark=10, leaves="c1", state="s1", **same),
        add_data(watermark=10, leaves="c1", state="s2", **same),
        ("neither",),
    )


# --- transforms ---------------------------------------------------------------


@breaks("T1")
def a_transform_writes_data_before_a_schema() -> Broken:
    history = History("Derivative", set_transform("a"))
    step = taken("a", None, "a1", None, 9)
    return Broken(
        history, execute(step, data=(0, 9), watermark=1), execute(step, watermark=1), ("SetDataSchema",)
    )


@breaks("T2")
def inputs_change_places() -> Broken:
    a, b = (taken(label, None, f"{label}1", None, 9) for label in "ab")
    return Broken(
        derivative("a", "b"),
        execute(b, a, watermark=1),
        execute(a, b, watermark=1),
        (dataset_id("a"), dataset_id("b")),
    )


@breaks("T2")
def an_input_without_news_is_left_out() -> Broken:
    a = taken("a", None, "a1", None, 9)
    return Broken(
        derivative("a", "b"),
        execute(a, watermark=1),
        execute(a, taken("b"), watermark=1),
        (dataset_id("b"), dataset_id("a")),
    )


@breaks("T2")
def an_input_nobody_declared_is_read() -> Broken:
    a, b = (taken(label, None, f"{label}1", None, 9) for label in "ab")
    return Broken(
        derivative("a"),
        execute(a, b, watermark=1),
        execute(a, watermark=1),
        (dataset_id("a"), dataset_id("b")),
    )


@breaks("T3")
def a_transform_was_never_defined() -> Broken:
    history = History("Derivative", set_data_schema())
    step = execute(taken("a", None, "a1", None, 9), watermark=1)
    return Broken(history, step, set_transform("a"), ("SetTransform",))


def following(new: dict[str, Any], **more: Any) -> tuple[History, Event]:
    """A derivative that has taken ten records of one input, and a second step over it."""
    first = execute(taken("a", None, "a1", None, 9), watermark=10)
    return derivative("a", events=(first,)), execute(taken("a", **new), watermark=11, **more)


@breaks("T4")
def an_interval_of_blocks_is_empty() -> Broken:
    history, bad = following(A_TO_B | {"new_block": "a1"})
    return Broken(history, bad, following(A_TO_B)[1], (dataset_id("a"), digest("a1")))


@breaks("T5")
def an_interval_of_offsets_is_empty() -> Broken:
    history, bad = following(A_TO_B | {"new_block": "a2", "new_offset": 9})
    return Broken(history, bad, following(A_TO_B | {"new_block": "a2"})[1], (dataset_id("a"), "(9, 9]"))


@breaks("T5")
def an_offset_is_beyond_what_a_column_of_offsets_can_hold() -> Broken:
    history, bad = following(A_TO_B | {"new_block": "a2", "new_offset": 1 << 63})
    good = following(A_TO_B | {"new_block": "a2", "new_offset": (1 << 63) - 1})[1]
    return Broken(history, bad, good, (9, 1 << 63))


@breaks("T6")
def an_input_does_not_go_on_at_its_last_block() -> Broken:
    history, bad = following({"prev_block": "a0", "new_block": "a2", "prev_offset": 9, "new_offset": 19})
    good = following(A_TO_B | {"new_block": "a2", "new_offset": 19})[1]
    return Broken(history, bad, good, (digest("a0"), digest("a1"), dataset_id("a")))


@breaks("T6")
def the_last_block_of_an_input_is_forgotten() -> Broken:
    history, bad = following({"new_block": "a2", "prev_offset": 9, "new_offset": 19})
    good = following(A_TO_B | {"new_block": "a2", "new_offset": 19})[1]
    return Broken(history, bad, good, (None, digest("a1")))


@breaks("T6")
def the_last_block_carried_over_an_idle_step_is_forgotten() -> Broken:
    history, idle = following(A_TO_B)
    history.append(idle)
    bad = execute(taken("a", None, None, 9), watermark=12)
    return Broken(history, bad, execute(taken("a", "a1", None, 9), watermark=12), (None, digest("a1")))


@breaks("T7")
def an_input_does_not_go_on_at_its_last_offset() -> Broken:
    history, bad = following({"prev_block": "a1", "new_block": "a2", "prev_offset": 8, "new_offset": 19})
    good = following(A_TO_B | {"new_block": "a2", "new_offset": 19})[1]
    return Broken(history, bad, good, ("prevOffset 8", "9", dataset_id("a")))


@breaks("T7")
def the_last_offset_of_an_idle_input_is_forgotten() -> Broken:
    history, bad = following({"prev_block": "a1"})
    return Broken(history, bad, following(A_TO_B)[1], (None, 9))


@breaks("T8")
def records_are_taken_without_a_block() -> Broken:
    history, bad = following(A_TO_B | {"new_offset": 19})
    good = following(A_TO_B | {"new_block": "a2", "new_offset": 19})[1]
    return Broken(history, bad, good, (dataset_id("a"), 19))


@breaks("T9")
def a_transform_starts_from_another_checkpoint() -> Broken:
    history = derivative("a", events=(execute(taken("a", None, "a1", None, 9), leaves="c1"),))
    step = taken("a", "a1", "a2", 9, 19)
    return Broken(
        history,
        execute(step, was="c0", leaves="c2"),
        execute(step, was="c1", leaves="c2"),
        (digest("c0"), digest("c1")),
    )


@breaks("T10")
def a_transform_only_moves_its_inputs() -> Broken:
    step = taken("a", None, "a1", None, 9)
    return Broken(derivative("a"), execute(step), execute(step, leaves="c1"), ("empty",))


@breaks("T11")
def a_transform_repeats_everything() -> Broken:
    history = derivative("a", events=(execute(taken("a", None, "a1", None, 9), watermark=10, leaves="c1"),))
    same = {"watermark": 10, "was": "c1", "leaves": "c1"}
    return Broken(
        history,
        execute(taken("a", "a1", None, 9), **same),
        execute(taken("a", "a1", "a2", 9), **same),
        ("neither",),
    )


# --- sources ------------------------------------------------------------------


@breaks("S1")
def a_push_source_is_added_again() -> Broken:
    return Broken(root(push_source()), push_source(), push_source(read={"kind": "Csv"}), ("default",))


@breaks("S1")
def a_polling_source_is_set_again() -> Broken:
    return Broken(
        root(polling_source()), polling_source(), polling_source("https://example.org/b.csv"), ("polling",)
    )


@breaks("S2")
def a_push_source_is_added_beside_polling() -> Broken:
    return Broken(
        root(polling_source()), push_source(), {"kind": "DisablePollingSource"}, ("default", "polling")
    )


@breaks("S4")
def polling_is_set_beside_a_push_source() -> Broken:
    history = root(push_source("one"), push_source("two"))
    return Broken(
        history, polling_source(), {"kind": "DisablePushSource", "sourceName": "one"}, ("one", "two")
    )


BOTH = {"kind": "Csv", "ddlSchema": ["a INT"], "schema": {"fields": [{"name": "a", "type": "Int32"}]}}
ONE = {"kind": "Csv", "ddlSchema": ["a INT"]}


@breaks("S5")
def a_push_source_has_two_schemas() -> Broken:
    return Broken(root(), push_source(read=BOTH), push_source(read=ONE), ("ddlSchema", "read.schema"))


@breaks("S5")
def a_polling_source_has_two_schemas() -> Broken:
    return Broken(root(), polling_source(read=BOTH), polling_source(read=ONE), ("ddlSchema", "read.schema"))


@breaks("S6")
def an_ethereum_source_has_no_origin() -> Broken:
    logs = {"kind": "EthereumLogs", "filter": "address = x"}
    return Broken(
        root(),
        polling_source(fetch=logs),
        polling_source(fetch=logs | {"chainId": 1}),
        ("chainId", "nodeUrl"),
    )


@breaks("S7")
def a_push_source_that_is_not_there_is_disabled() -> Broken:
    bad, good = ({"kind": "DisablePushSource", "sourceName": name} for name in ("other", "default"))
    return Broken(root(push_source()), bad, good, ("other", "default"))


@breaks("S7")
def a_push_source_is_disabled_where_none_is() -> Broken:
    return Broken(
        root(), {"kind": "DisablePushSource", "sourceName": "other"}, push_source(), ("other", "none")
    )


@breaks("S7")
def polling_is_disabled_that_was_never_set() -> Broken:
    return Broken(root(), {"kind": "DisablePollingSource"}, polling_source(), ("polling",))


# --- queries ------------------------------------------------------------------


def transform(*queries: dict[str, Any], **more: Any) -> Event:
    return set_transform("a", transform=sql(*queries, **more))


LAST = {"query": "select 1"}
NAMED = {"alias": "one", "query": "select 1"}


@breaks("X1")
def the_short_form_of_a_query_is_stored() -> Broken:
    bad = set_transform("a", transform={"kind": "Sql", "engine": "spark", "query": "select 1"})
    return Broken(History("Derivative"), bad, transform(LAST), ("query", "normalised"))


@breaks("X1")
def a_preparation_keeps_the_short_form_of_its_query() -> Broken:
    bad = push_source(preprocess=sql(LAST, query="select 1"))
    return Broken(root(), bad, push_source(preprocess=sql(LAST)), ("query",))


@breaks("X2")
def a_transform_has_no_query() -> Broken:
    bad = set_transform("a", transform={"kind": "Sql", "engine": "spark", "queries": []})
    return Broken(History("Derivative"), bad, transform(LAST), ("at least one query",))


@breaks("X2")
def a_preparation_has_no_query() -> Broken:
    bad = polling_source(preprocess={"kind": "Sql", "engine": "spark"})
    return Broken(root(), bad, polling_source(preprocess=sql()), ("at least one query",))


@breaks("X3")
def the_last_query_has_a_name() -> Broken:
    return Broken(History("Derivative"), transform(NAMED), transform(LAST), ("one",))


@breaks("X4")
def a_query_before_the_last_has_no_name() -> Broken:
    return Broken(
        History("Derivative"), transform(NAMED, LAST, LAST), transform(NAMED, LAST), ("query 1", "of 3")
    )


@breaks("X5")
def a_transform_reads_nothing() -> Broken:
    return Broken(History("Derivative"), set_transform(), set_transform("a"), ("at least one input",))


@breaks("X6")
def a_transform_reads_an_input_twice() -> Broken:
    return Broken(
        History("Derivative"), set_transform("a", "b", "a"), set_transform("a", "b"), (dataset_id("a"),)
    )


def of_input(reference: str, alias: str | None) -> Event:
    source = {"datasetRef": reference} | ({"alias": alias} if alias else {})
    return {"kind": "SetTransform", "inputs": [source], "transform": sql()}


@breaks("X7")
def an_input_is_named_not_identified() -> Broken:
    return Broken(History("Derivative"), of_input("trades", "trades"), set_transform("a"), ("trades",))


@breaks("X7")
def an_input_has_no_alias() -> Broken:
    name = str(dataset_id("a"))
    return Broken(History("Derivative"), of_input(name, None), of_input(name, "a"), (name, None))


@breaks("X7")
def an_input_is_identified_by_something_that_is_no_id() -> Broken:
    return Broken(
        History("Derivative"), of_input("did:odf:fed0100", "a"), set_transform("a"), ("did:odf:fed0100",)
    )


# --- schemas ------------------------------------------------------------------


@breaks("H1")
def a_schema_is_set_again() -> Broken:
    return Broken(root(), set_data_schema(), set_data_schema(OPTIONAL), ("identical",))


@breaks("H2")
def a_column_is_removed() -> Broken:
    history = root(set_data_schema(OPTIONAL))
    other = {"name": "y", "type": OPTIONAL["type"]}
    return Broken(history, set_data_schema(other), set_data_schema(OPTIONAL, other), ("x", "removed"))


@breaks("H2")
def a_new_column_must_be_there() -> Broken:
    return Broken(root(), set_data_schema(REQUIRED), set_data_schema(OPTIONAL), ("x",))


@breaks("H2")
def a_column_changes_its_type() -> Broken:
    history = root(set_data_schema(OPTIONAL))
    changed = {"name": "x", "type": {"kind": "Option", "inner": "Int64"}}
    reordered = set_data_schema(system=[OPTIONAL, *SYSTEM_COLUMNS])
    return Broken(history, set_data_schema(changed), reordered, ("x", "String", "Int64"))


@breaks("H2")
def an_optional_column_becomes_required() -> Broken:
    history = root(set_data_schema(OPTIONAL))
    described = OPTIONAL | {"extra": {"example.org/about": "x"}}
    return Broken(
        history, set_data_schema(REQUIRED), set_data_schema(described), ("optional String", "String")
    )


@breaks("H3")
def a_system_column_is_missing() -> Broken:
    return Broken(
        History(), set_data_schema(system=SYSTEM_COLUMNS[1:]), set_data_schema(), ("offset", "Int64")
    )


@breaks("H3")
def a_system_column_has_another_type() -> Broken:
    wrong = [SYSTEM_COLUMNS[0], {"name": "op", "type": "UInt8"}, *SYSTEM_COLUMNS[2:]]
    return Broken(History(), set_data_schema(system=wrong), set_data_schema(), ("op", "UInt8", "Int32"))


@breaks("H3")
def the_renamed_system_column_is_missing() -> Broken:
    vocab = {"kind": "SetVocab", "eventTimeColumn": "at"}
    renamed = [*SYSTEM_COLUMNS[:3], {"name": "at", "type": "Date"}]
    return Broken(History("Root", vocab), set_data_schema(), set_data_schema(system=renamed), ("at", "Date"))


# --- stricter rules -----------------------------------------------------------


@breaks("R1")
def the_first_data_event_carries_an_offset() -> Broken:
    return Broken(root(), add_data((10, 19), prev=9), add_data((0, 9)), (9,))


@breaks("R1")
def the_first_event_without_data_carries_an_offset() -> Broken:
    return Broken(root(), add_data(prev=9, watermark=1), add_data(watermark=1), (9,))


@breaks("R2")
def the_first_step_goes_on_from_a_block() -> Broken:
    bad = execute(taken("a", "a0", "a1", None, 9), watermark=1)
    good = execute(taken("a", None, "a1", None, 9), watermark=1)
    return Broken(derivative("a"), bad, good, (digest("a0"), None, dataset_id("a")))


@breaks("R2")
def the_first_step_goes_on_from_an_offset() -> Broken:
    bad = execute(taken("a", None, "a1", 4, 9), watermark=1)
    good = execute(taken("a", None, "a1", None, 9), watermark=1)
    return Broken(derivative("a"), bad, good, (4, None, dataset_id("a")))


@breaks("R3")
def an_input_is_read_backwards() -> Broken:
    history, bad = following(A_TO_B | {"new_block": "a2", "new_offset": 8})
    good = following(A_TO_B | {"new_block": "a2", "new_offset": 10})[1]
    return Broken(history, bad, good, ("from 9", "to 8", dataset_id("a")))


def read_input() -> tuple[History, History]:
    """An input of three commits of ten records each, and a derivative that knows its chain."""
    source = root(label="a")
    for end in (9, 19, 29):
        prev = end - 10 if end > 9 else None
        source.append(add_data((end - 9, end), prev=prev))
    return source, derivative("a", inputs={dataset_id("a"): source.chain})


def blocks_of(source: History) -> list[Any]:
    """The three data blocks of an input, oldest first."""
    return [name for name, _ in source.chain.walk()][2::-1]


@breaks("R4")
def a_block_is_not_on_the_chain_of_the_input() -> Broken:
    source, history = read_input()
    first = blocks_of(source)[0]
    bad = execute(taken("a", None, "elsewhere", None, 9), watermark=1)
    good = execute(taken("a", None, first, None, 9), watermark=1)
    return Broken(history, bad, good, (f"{digest('elsewhere')} is not on its chain", dataset_id("a")))


@breaks("R4")
def an_input_is_read_towards_an_older_block() -> Broken:
    source, history = read_input()
    first, second, third = blocks_of(source)
    history.append(execute(taken("a", None, second, None, 19), watermark=1))
    bad = execute(taken("a", second, first, 19), watermark=2)
    good = execute(taken("a", second, third, 19, 29), watermark=2)
    return Broken(history, bad, good, (second, first))


@breaks("R4")
def an_input_was_reset_under_its_reader() -> Broken:
    source, history = read_input()
    first, _, third = blocks_of(source)
    history.append(execute(taken("a", None, third, None, 29), watermark=1))
    source.chain.reset(first)
    source.append(add_data((10, 39), prev=9))
    bad = execute(taken("a", third, source.head, 29, 39), watermark=2)
    return Broken(history, bad, set_transform("b"), (f"{third} is not on its chain", source.head))


@breaks("R4")
def an_input_that_was_reset_is_not_read_on() -> Broken:
    source, history = read_input()
    first, _, third = blocks_of(source)
    history.append(execute(taken("a", None, third, None, 29), watermark=1))
    source.chain.reset(first)
    bad = execute(taken("a", third, None, 29), watermark=2)
    return Broken(history, bad, set_transform("b"), (f"{third} is not on its chain", dataset_id("a")))


@breaks("R4")
def one_of_two_idle_inputs_was_reset() -> Broken:
    source, other = root(add_data((0, 9)), label="a"), root(add_data((0, 4)), label="b")
    history = derivative("a", "b", inputs={dataset_id(n): s.chain for n, s in (("a", source), ("b", other))})
    first, second = source.head, other.head
    history.append(execute(taken("a", None, first, None, 9), taken("b", None, second, None, 4), watermark=1))
    other.chain.reset(other.chain.block(second).prev_block_hash)
    source.append(add_data((10, 19), prev=9))
    step = taken("a", first, source.head, 9, 19)
    bad = execute(step, taken("b", second, None, 4), watermark=2)
    return Broken(history, bad, set_transform("a"), (f"{second} is not on its chain", dataset_id("b")))


@breaks("R5")
def fewer_records_are_taken_than_the_blocks_hold() -> Broken:
    source, history = read_input()
    second = blocks_of(source)[1]
    bad, good = (execute(taken("a", None, second, None, end), watermark=1) for end in (18, 19))
    return Broken(history, bad, good, (18, 19, second))


@breaks("R5")
def blocks_with_records_are_taken_without_them() -> Broken:
    source, history = read_input()
    first, second, _ = blocks_of(source)
    history.append(execute(taken("a", None, first, None, 9), watermark=1))
    bad = execute(taken("a", first, second, 9), watermark=2)
    good = execute(taken("a", first, second, 9, 19), watermark=2)
    return Broken(history, bad, good, (9, 19, second))


@breaks("R6")
def a_derivative_is_given_data() -> Broken:
    step = execute(taken("a", None, "a1", None, 9), data=(0, 9))
    return Broken(derivative("a"), add_data((0, 9)), step, ("AddData", "Root", "Derivative"))


@breaks("R6")
def a_derivative_is_given_a_push_source() -> Broken:
    return Broken(derivative("a"), push_source(), INFO, ("AddPushSource", "Root", "Derivative"))


@breaks("R6")
def a_derivative_is_given_a_polling_source() -> Broken:
    return Broken(derivative("a"), polling_source(), INFO, ("SetPollingSource", "Root", "Derivative"))


@breaks("R6")
def a_root_is_given_a_transform() -> Broken:
    return Broken(root(), set_transform("a"), INFO, ("SetTransform", "Root", "Derivative"))


@breaks("R7")
def a_new_input_goes_on_from_a_block() -> Broken:
    first = execute(taken("a", None, "a1", None, 9), watermark=1)
    history = derivative("a", events=(first, set_transform("b", "a")))
    bad = execute(taken("b", "a1", "b1", None, 4), taken("a", "a1", None, 9), watermark=2)
    good = execute(taken("b", None, "b1", None, 4), taken("a", "a1", None, 9), watermark=2)
    return Broken(history, bad, good, (dataset_id("b"), digest("a1"), None))


@breaks("R7")
def a_new_input_goes_on_from_an_offset() -> Broken:
    first = execute(taken("a", None, "a1", None, 9), watermark=1)
    history = derivative("a", events=(first, set_transform("b", "a")))
    bad = execute(taken("b", None, "b1", 9, 14), taken("a", "a1", None, 9), watermark=2)
    good = execute(taken("b", None, "b1", None, 14), taken("a", "a1", None, 9), watermark=2)
    return Broken(history, bad, good, (dataset_id("b"), 9, None))


@breaks("R7")
def an_input_that_was_dropped_goes_on_where_it_was() -> Broken:
    both = execute(taken("a", None, "a1", None, 9), taken("b", None, "b1", None, 4), watermark=1)
    without = execute(taken("a", "a1", "a2", 9, 19), watermark=2)
    history = derivative("a", "b", events=(both, set_transform("a"), without, set_transform("a", "b")))
    idle = taken("a", "a2", None, 19)
    bad = execute(idle, taken("b", "b1", "b2", 4, 8), watermark=3)
    good = execute(idle, taken("b", None, "b2", None, 8), watermark=3)
    return Broken(history, bad, good, (dataset_id("b"), digest("b1"), 4, None))


@breaks("R8")
def a_watermark_loses_the_source_state() -> Broken:
    history = root(add_data((0, 9), watermark=10, state="s1"))
    return Broken(
        history, add_data(prev=9, watermark=11), add_data(prev=9, watermark=11, state="s1"), ("default",)
    )


@breaks("R8")
def a_watermark_loses_the_checkpoint() -> Broken:
    history = root(add_data((0, 9), watermark=10, leaves="c1"))
    same = {"prev": 9, "watermark": 11, "was": "c1"}
    return Broken(history, add_data(**same), add_data(leaves="c1", **same), (digest("c1"),))


@breaks("R9")
def the_first_step_writes_records_of_no_input() -> Broken:
    bad = execute(taken("a"), data=(0, 9), leaves="c1")
    good = execute(taken("a", None, "a1", None, 9), data=(0, 9), leaves="c1")
    return Broken(derivative("a"), bad, good, ("up to offset 9", "no block of any input"))


@breaks("R9")
def the_first_step_is_a_part_that_nothing_ends() -> Broken:
    good = execute(taken("a", None, "a1", None, 9), data=(0, 9))
    return Broken(derivative("a"), execute(taken("a"), data=(0, 9)), good, ("up to offset 9", "does not end"))


def rebuilt(*more: Event) -> History:
    """A derivative of ten records over one input, with a checkpoint."""
    first = execute(taken("a", None, "a1", None, 9), data=(0, 9), watermark=1, leaves="c1")
    return derivative("a", events=(first, *more))


def over_nothing(leaves: str, *, watermark: float = 1, **inputs: Any) -> Event:
    """Ten more records over an input that did not move unless `inputs` say so."""
    step = taken("a", **({"prev_block": "a1", "prev_offset": 9} | inputs))
    return execute(step, data=(10, 19), prev=9, watermark=watermark, was="c1", leaves=leaves)


@breaks("R9")
def records_are_written_though_no_input_moved() -> Broken:
    bad, good = over_nothing("c2"), over_nothing("c2", new_block="a2", new_offset=19)
    return Broken(rebuilt(), bad, good, ("up to offset 19", "no input moved"))


@breaks("R9")
def a_rebuild_is_done_twice() -> Broken:
    history = rebuilt(set_transform("a"), over_nothing("c2"))
    more = {"data": (20, 29), "prev": 19, "watermark": 1, "was": "c2", "leaves": "c3"}
    bad = execute(taken("a", "a1", None, 9), **more)
    good = execute(taken("a", "a1", "a2", 9, 19), **more)
    return Broken(history, bad, good, ("up to offset 29", "no input moved"))


@breaks("R9")
def a_later_commit_is_a_part_that_nothing_ends() -> Broken:
    good = over_nothing("c1", new_block="a2", new_offset=19)
    return Broken(rebuilt(), over_nothing("c1"), good, ("up to offset 19", "does not end"))


def commit_of_three() -> tuple[History, list[Any]]:
    """An input whose second commit has three parts, and the blocks of that commit."""
    source = root(add_data((0, 9)), label="a")
    blocks = []
    for part in (1, 2, 3):
        last = 9 + 10 * part
        record = {"trueline/commit": {"part": part, "parts": 3}}
        source.append(add_data((last - 9, last), prev=last - 10, extra=record))
        blocks.append(source.head)
    return source, blocks


@breaks("R10")
def an_input_is_taken_up_to_the_middle_of_a_commit() -> Broken:
    source, (_, second, third) = commit_of_three()
    history = derivative("a", inputs={dataset_id("a"): source.chain})
    bad = execute(taken("a", None, second, None, 29), watermark=1)
    good = execute(taken("a", None, third, None, 39), watermark=1)
    return Broken(history, bad, good, (second, "does not end a commit", dataset_id("a")))


@breaks("R10")
def a_derived_input_is_taken_up_to_a_part() -> Broken:
    part = execute(taken("r"), data=(0, 9))
    end = execute(taken("r", None, "r1", None, 4), data=(10, 19), prev=9, leaves="c1")
    source = derivative("r", label="a")
    first = source.block(part)
    second = source.block(end, prevBlockHash=str(first.hash), sequenceNumber=first.sequence_number + 1)
    source.chain.append(first, second)
    history = derivative("a", inputs={dataset_id("a"): source.chain})
    bad = execute(taken("a", None, first.hash, None, 9), watermark=1)
    good = execute(taken("a", None, second.hash, None, 19), watermark=1)
    return Broken(history, bad, good, (first.hash, "does not end a commit", dataset_id("a")))
