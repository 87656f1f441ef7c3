"""Several named queries of one definition come back as they were written, whatever is in them. No Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trueline.chain.events import TransformInput
from trueline.chain.sources import SqlQueryStep
from trueline.dataset.derivation import Derivation, KeyKind, _read
from trueline.workspace.derive.request import DerivationRequest, steps_of

INPUT = TransformInput("did:odf:fed01" + "0" * 64, "t")
LINES = st.sampled_from(["select 1", "-- step a", "-- step by step we go", "from t", "", " x\r", "\u2028y"])
TEXTS = st.lists(LINES, min_size=1).map("\n".join).filter(str.strip)
COMMENT = [("a", "select 1\n-- step by step we go\nfrom t"), ("z", "select * from a")]


def recorded(steps):
    """A definition as a chain gives it back."""
    asked = DerivationRequest("x", steps)
    names = [name for name, _ in asked.steps]
    queries = (*(SqlQueryStep(alias=name, query="q") for name in names[:-1]), SqlQueryStep(query="q"))
    canonical = ("q",) * len(queries)
    made = Derivation(
        queries,
        (INPUT,),
        (),
        KeyKind.BAG,
        asked.written,
        canonical=canonical,
        steps=asked.recorded_steps,
    )
    return asked, _read(made.transform, made.document, None, "")


@example(COMMENT)
@given(st.lists(st.tuples(st.sampled_from("abz"), TEXTS), min_size=1, max_size=3))
def test_steps_come_back_as_they_were_written(steps):
    asked, found = recorded(steps)
    expected = asked.written if len(steps) == 1 else list(asked.steps)
    assert steps_of(found) == expected


def test_what_was_recorded_before_is_read_as_ever():
    steps = [("a", "select 1\nfrom t"), ("z", "select * from a")]
    _, found = recorded(steps)
    assert steps_of(replace(found, steps=())) == steps


@pytest.mark.parametrize("written", ["", "select 1", "\n-- step a\nselect 1"])
def test_a_text_without_names_of_steps_gives_the_queries_that_are_recorded(written):
    _, found = recorded(COMMENT)
    assert steps_of(replace(found, steps=(), written=written)) == [("a", "q"), ("", "q")]


def test_steps_that_are_not_those_of_the_text_are_not_believed():
    _, found = recorded([("a", "select 1"), ("z", "select * from a")])
    forged = replace(found, steps=(("a", "select 2"), ("z", "select * from a")))
    assert steps_of(forged) == [("a", "select 1"), ("z", "select * from a")]
