"""Definitions of derived datasets as events and back; what others wrote is held at arm's length."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueline import check
from trueline.chain.events import (
    AttachmentEmbedded,
    AttachmentsEmbedded,
    DatasetKind,
    SetAttachments,
    TransformInput,
)
from trueline.chain.head_state import Tail
from trueline.chain.instant import Instant
from trueline.chain.sources import SqlQueryStep
from trueline.check import same_checks
from trueline.dataset.definition import PATH, Addendum
from trueline.dataset.derivation import Derivation, FunctionOf, KeyKind, derivation_at
from trueline.errors import InputError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.dependencies import referred

INPUT = TransformInput("did:odf:fed01" + "0" * 64, "t")
PLAIN = Derivation(
    (SqlQueryStep(query="select 1"),), (INPUT,), ("id",), KeyKind.DECLARED, canonical=("select 1",)
)


def tail_of(derivation, document=None):
    attachments = derivation.attachments
    if document is not None:
        attachments = SetAttachments(AttachmentsEmbedded((AttachmentEmbedded(PATH, json.dumps(document)),)))
    return Tail(
        Multihash.of(b"x"),
        3,
        Instant(0),
        DatasetId("did:odf:fed01" + "1" * 64),
        DatasetKind.Derivative,
        transform=derivation.transform,
        attachments=attachments,
    )


def test_a_definition_comes_back_as_it_was():
    asked = Derivation(
        (SqlQueryStep(query="select 1"),),
        (INPUT,),
        ("id",),
        KeyKind.DECLARED,
        "select 1",
        "recompute",
        "function",
        columns={"id": "who"},
        nondet={"t": "any will do"},
        checks=(check.not_null("id").warn(), check.relation("id", "people")),
        function=FunctionOf("a.b:c", "def c(t):\n    return t\n"),
        replaces=INPUT.dataset_ref,
        from_here=True,
        file="models/x.sql",
        steps=(("a", "select 1"), ("b", "select 2")),
    )
    assert derivation_at(tail_of(asked)) == asked


@pytest.mark.parametrize("name", ["nondet", "columns", "checks", "canonical"])
def test_a_document_of_another_form_is_refused(name):
    document = {**json.loads(PLAIN.document), name: "text"}
    with pytest.raises(InputError, match=name) as caught:
        derivation_at(tail_of(PLAIN, document))
    assert caught.value.code == "BadDerivation"


NAMES = [
    *("key", "identity", "key_equality", "strategy", "reason", "written", "columns", "canonical", "nondet"),
    *("checks", "function", "replaces", "from_here", "file", "folder", "steps", "version", "format", "later"),
]
CHECK_NAMES = [
    "kind",
    "columns",
    "action",
    "condition",
    "at_least",
    "at_most",
    "dataset",
    "other",
    "id",
    "age",
]
KINDS = ["not_null", "unique", "in_range", "expression", "row_count", "max_age", "relation", "magic"]
# What JSON can hold, half a character included.
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
JUNK_CHECK = st.dictionaries(st.sampled_from(["kind", *CHECK_NAMES]), JUNK) | st.builds(
    lambda kind, more: {**more, "kind": kind},
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(CHECK_NAMES), JUNK | st.just(["id"])),
)


@settings(max_examples=300)
@given(name=st.sampled_from(NAMES), value=JUNK)
def test_whatever_a_document_says_of_a_name_is_read_or_refused(name, value):
    holds_together(tail_of(PLAIN, {**json.loads(PLAIN.document), name: value}))


@settings(max_examples=300)
@given(checks=st.lists(JUNK_CHECK | JUNK, max_size=2))
def test_whatever_checks_a_document_says_are_read_or_refused(checks):
    holds_together(tail_of(PLAIN, {**json.loads(PLAIN.document), "checks": checks}))
    text = json.dumps({"format": "trueline/definition", "version": 1, "checks": checks})
    with suppress(InputError):
        assert Addendum.from_text(Addendum.from_text(text).to_text())


@settings(max_examples=200)
@given(name=st.sampled_from([*Addendum.__slots__, "format", "version", "later"]), value=JUNK)
def test_whatever_the_document_of_a_root_says_is_read_or_refused(name, value):
    said = {"format": "trueline/definition", "version": 1, name: value}
    with suppress(InputError):
        assert Addendum.from_text(Addendum.from_text(json.dumps(said)).to_text())


@pytest.mark.parametrize(
    "said",
    [
        {"identity": "x"},
        {"key": "id"},
        {"key": [1]},
        {"canonical": []},
        {"canonical": ["select 1", "select 2"]},
        {"canonical": [{}]},
        {"columns": {"id": 5}},
        {"function": ["os:system"]},
        {"replaces": []},
        {"steps": [["a", 1]]},
        {"steps": ["ab"]},
        {"written": "\ud800"},
        {"checks": [{"kind": "unique", "columns": 5}]},
        {"checks": [{"kind": "relation", "columns": ["id"], "dataset": ["x"], "other": "id"}]},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_with_what_to_do(said):
    with pytest.raises(InputError) as caught:
        derivation_at(tail_of(PLAIN, {**json.loads(PLAIN.document), **said}))
    assert caught.value.code in ("BadDerivation", "BadCheck")
    assert "restore the dataset from a copy" in caught.value.remedy


def holds_together(tail):
    """A definition is refused with an error of ours, or can be written again, compared and named."""
    with suppress(InputError):
        found = derivation_at(tail)
        again = derivation_at(tail_of(found))  # what is empty is not written
        assert derivation_at(tail_of(again)) == again
        assert {referred(check, {}) for check in found.checks} >= set()
        assert same_checks(found.checks, found.checks)
        assert hash(found.checks) == hash(tuple(found.checks))


def test_a_check_of_later_software_is_read_and_not_judged():
    document = {**json.loads(PLAIN.document), "checks": [{"kind": "magic", "columns": ["id"]}]}
    (found,) = derivation_at(tail_of(PLAIN, document)).checks
    assert not found.is_known
