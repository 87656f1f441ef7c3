"""The table of what runs where is made from the code, and has every step that a view can take."""

from __future__ import annotations

import re

import pytest

from tools import places
from trueline.view.verbs import Verbs


@pytest.mark.contract("exchange:E7")
def test_the_page_says_what_explain_says():
    assert places.page() == places.PAGE.read_text(encoding="utf-8"), "run `python tools/places.py`"


def test_every_verb_is_in_the_table():
    named = {word for name in places.VERBS for word in re.findall(r"`(\w+)", name)}
    assert {name for name in vars(Verbs) if not name.startswith("_")} <= named


def test_a_step_that_says_something_else_is_found(monkeypatch):
    monkeypatch.setattr(places, "describe", lambda node: "somewhere")
    assert places.main(["--check"]) == 1
