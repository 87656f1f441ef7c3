"""Every remedy works: what it names is typed in the situation that raises it, or it is marked as prose."""

from __future__ import annotations

import re
import tomllib

import pytest

import tests.remedies.stories  # noqa: F401 (registers them)
from tests.architecture import ROOT
from tests.remedies.collect import Remedy, remedies
from tests.remedies.registry import lines, prose
from tests.remedies.story import STORIES, Scene, Story

TOLD = {key for each in STORIES for key in each.remedies}


def test_every_remedy_is_tried_or_marked_as_prose():
    new = [key for key in remedies() if key not in TOLD and key not in prose()]
    typed = [key for key in new if key.can_be_typed]
    stories = "\n".join(
        f'@story("{key.module}", {key.text!r})  # {remedies()[key]}\ndef …(scene: Scene) -> None: …'
        for key in typed
    )
    plain = lines([key for key in new if not key.can_be_typed])
    assert not new, (
        f"{len(new)} remedies are neither tried nor marked as prose.\n"
        f"These name something to type; add a story of each to tests/remedies/stories:\n{stories}\n"
        f"Add these to tests/remedies/prose.txt, or let `python -m tests.remedies` do it:\n{plain}"
    )


def test_what_is_marked_as_prose_is_still_said():
    gone = [key for key in prose() if key not in remedies()]
    assert not gone, f"remove from tests/remedies/prose.txt:\n{lines(gone)}"


def test_what_stories_are_about_is_still_said():
    gone = [f"{each.name}: {key}" for each in STORIES for key in each.remedies if key not in remedies()]
    assert not gone, "these stories are about texts that are not in the code:\n" + "\n".join(gone)


def test_prose_that_names_something_to_type_has_a_reason():
    bare = [key for key, reason in prose().items() if key.can_be_typed and not reason]
    assert not bare, f"write a story, or a reason behind ` <- `:\n{lines(bare)}"


def test_a_remedy_with_a_story_is_not_marked_as_prose():
    assert not TOLD & set(prose())


@pytest.mark.parametrize(
    "text",
    [
        "give max_bad=1",
        "`trueline gc`",
        "pip install x",
        "add --key COLUMN",
        "use ws.pull()",
        "see run.failures",
    ],
)
def test_what_can_be_typed_is_seen(text):
    assert Remedy("x", text).can_be_typed


@pytest.mark.parametrize(
    "text", ["fix the file", "give one of {', '.join(f(x))}", "swap them", "put it in quotes"]
)
def test_prose_is_seen(text):
    assert not Remedy("x", text).can_be_typed


def test_packages_that_remedies_install_are_known_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    known = {re.split(r"[\[<>=!~; ]", one)[0].lower() for each in extras.values() for one in each}
    known |= {re.split(r"[\[<>=!~; ]", one)[0].lower() for one in project["dependencies"]}
    for key in remedies():
        for package, extra in re.findall(r"pip install '?([a-z0-9_-]+)(?:\[(\w+)\])?", key.text):
            assert extra in (*extras, "") if package == "trueline" else package in known, key


def of_lane(spark: bool) -> list[pytest.param]:
    return [pytest.param(one, id=one.name) for one in STORIES if needs_spark(one) is spark]


def needs_spark(one: Story) -> bool:
    return one.tell.__module__ == "tests.remedies.stories.spark" or one.name == "tables.workspace"


def play(each: Story, scene: Scene) -> None:
    with scene.stack:
        each.tell(scene)
    assert scene.met == set(each.remedies), "not met: " + "; ".join(
        key.text for key in set(each.remedies) - scene.met
    )


@pytest.fixture
def scene_of(tmp_path, monkeypatch):
    """Nobody's workspace, and settings of its own."""
    monkeypatch.delenv("TRUELINE_WORKSPACE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return lambda each: Scene(tmp_path, each.remedies)


@pytest.mark.parametrize("each", of_lane(spark=False))
def test_the_remedy_works(each, scene_of):
    play(each, scene_of(each))


@pytest.mark.usefixtures("spark_room")
@pytest.mark.parametrize("each", of_lane(spark=True))
def test_the_remedy_works_with_spark(each, scene_of):
    play(each, scene_of(each))
