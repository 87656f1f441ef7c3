"""Definitions of derived datasets as events and back; what others wrote is held at arm's length."""

from __future__ import annotations

import json

import pytest

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
from trueline.dataset.definition import PATH
from trueline.dataset.derivation import Derivation, FunctionOf, KeyKind, derivation_at
from trueline.errors import InputError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

INPUT = TransformInput("did:odf:fed01" + "0" * 64, "t")


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
    )
    assert derivation_at(tail_of(asked)) == asked


@pytest.mark.parametrize("name", ["nondet", "columns", "checks", "canonical"])
def test_a_document_of_another_form_is_refused(name):
    plain = Derivation((SqlQueryStep(query="select 1"),), (INPUT,), ("id",), KeyKind.DECLARED)
    document = {**json.loads(plain.document), name: "text"}
    with pytest.raises(InputError, match=name):
        derivation_at(tail_of(plain, document))


def test_a_check_of_later_software_is_read_and_not_judged():
    plain = Derivation((SqlQueryStep(query="select 1"),), (INPUT,), ("id",), KeyKind.DECLARED)
    document = {**json.loads(plain.document), "checks": [{"kind": "magic", "columns": ["id"]}]}
    (found,) = derivation_at(tail_of(plain, document)).checks
    assert not found.is_known
