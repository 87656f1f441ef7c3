from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chain.hostile import cost_of
from tests.chain.records import json_values
from trueline.chain import yaml_text
from trueline.chain.yaml_text import MAX_DEPTH, MAX_TEXT_BYTES
from trueline.errors import ManifestError


def refused(text: str | bytes) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        yaml_text.load(text)
    assert caught.value.remedy
    return caught.value


# --- plain data -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("2020-01-01", "2020-01-01"),
        ("12:30:45", "12:30:45"),
        ("yes", "yes"),
        ("off", "off"),
        ("007", "007"),
        ("089.5", "089.5"),
        ("0x1F", "0x1F"),
        ("0o17", "0o17"),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("=", "="),
        ("9" * 60, "9" * 60),
        ("1.0.0", "1.0.0"),
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("+7", 7),
        ("18446744073709551615", (1 << 64) - 1),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("-0.25E-1", -0.025),
    ],
)
def test_only_null_true_false_and_decimal_numbers_are_something_else_than_text(text, value):
    found = yaml_text.load(f"a: {text}")["a"]
    assert found == value
    assert type(found) is type(value)


def test_a_merge_key_is_a_key_like_any_other():
    assert yaml_text.load("<<: {a: 1}\nb: 2") == {"<<": {"a": 1}, "b": 2}


def test_json_is_read_as_it_is():
    assert yaml_text.load('{"a": [1, null, "x"], "b": {"c": "\\u00fc"}}') == {
        "a": [1, None, "x"],
        "b": {"c": "ü"},
    }


@given(json_values)
def test_what_is_written_is_read_back(value):
    assert yaml_text.load(yaml_text.dump({"a": value})) == {"a": value}


@given(st.one_of(st.from_regex(r"[-+]?[0-9]{1,6}[.eE]?[-+]?[0-9]{0,3}", fullmatch=True), st.text(max_size=4)))
def test_text_that_looks_like_a_number_stays_text(text):
    assert yaml_text.load(yaml_text.dump([text])) == [text]
    assert yaml_text.load(yaml_text.dump({text: text})) == {text: text}


@pytest.mark.parametrize(
    "text", ["1234e567", "12345e6", "089", "\x85", "a\u2028b", "<<", "=", "null", "~", ""]
)
def test_a_text_with_a_meaning_of_its_own_is_quoted(text):
    assert yaml_text.load(yaml_text.dump(text)) == text


def test_the_same_value_in_two_places_is_written_twice():
    part = {"a": [1]}
    assert yaml_text.load(yaml_text.dump([part, part])) == [part, part]


def test_several_documents_are_read_only_by_who_expects_them():
    assert yaml_text.load_all("a: 1\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]
    assert "2 documents" in refused("a: 1\n---\nb: 2\n").problem
    assert "0 documents" in refused("").problem


# --- bombs ------------------------------------------------------------------------


LAUGHS = "a: &a [x, x, x]\n" + "".join(
    f"{name}: &{name} [*{before}, *{before}, *{before}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LAUGHS, "aliases"),
        ("a: &a [*a]", "aliases"),
        ("a: &a {b: *a}", "aliases"),
        ("a: 1\nb: 2\na: 3", "twice"),
        ("{a: {b: 1, b: 1}}", "twice"),
        ("1: a\n1: b", "twice"),
        ("a: !!python/object/apply:os.system [id]", "tags"),
        ("!!python/object:object {}", "tags"),
        ("a: !custom x", "tags"),
        ("a: !!timestamp 2020-01-01", "tags"),
        ("a: !!binary aGk=", "tags"),
        ("a: !!set {x, y}", "tags"),
        ('a: !!int "0x10"', "tags"),
        ("? [a]\n: b", "key"),
        ("? {a: b}\n: c", "key"),
        ("a: [1, 2", "line"),
        ("a: b: c", "line 1"),
        ("\ta: 1", "line"),
        ("a: \x00", ""),
        (b"\xff\xfe\xff", ""),
        (b"a: \xe9", ""),
        ("[" * (MAX_DEPTH + 1), "deeper"),
        ("[" * 1_000_000, "deeper"),
        ("{a: " * 100_000, "deeper"),
        ("- " * 100_000, "deeper"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_anything_but_plain_data_is_refused(text, problem):
    assert problem in refused(text).problem


def test_the_line_is_named():
    assert "line 3, column 4" in refused("a: 1\nb: 2\nc: *x\n").problem


def test_nesting_is_read_to_its_limit():
    text = "[" * (MAX_DEPTH - 1) + "x" + "]" * (MAX_DEPTH - 1)
    assert str(yaml_text.load(text)).count("[") == MAX_DEPTH - 1


def test_a_text_that_is_too_large_is_refused_unread():
    text = "a: " + "x" * MAX_TEXT_BYTES
    assert "too large" in refused(text).problem
    assert cost_of_refusal(text) < 100


def test_what_is_nested_too_deep_is_refused_before_the_rest_is_read():
    assert cost_of_refusal("[" * 1_000_000) < 50_000


def test_ten_megabytes_of_small_values_are_refused_once_there_are_too_many(monkeypatch):
    monkeypatch.setattr(yaml_text, "MAX_VALUES", 1_000)
    text = "- a\n" * 2_500_000
    assert "1,000 values" in refused(text).problem
    assert cost_of_refusal(text) < 500_000
    assert len(yaml_text.load("- a\n" * 999)) == 999


def cost_of_refusal(text: str) -> int:
    def attempt() -> None:
        with pytest.raises(ManifestError):
            yaml_text.load(text)

    return cost_of(attempt).calls


@given(st.text(alphabet=st.sampled_from("ab:-?[]{},&*!|>'\"%@#\n \t0.~<="), max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        documents = yaml_text.load_all(text)
    except ManifestError:
        return
    for document in documents:
        assert yaml_text.load(yaml_text.dump(document)) == document
