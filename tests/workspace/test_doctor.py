"""The doctor: what it looks at, and what it says to do."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from trueline.spark import java
from trueline.workspace import doctor
from trueline.workspace.doctor import Verdict, examine


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def found(checks, name):
    (check,) = [check for check in checks if check.name == name]
    return check


def test_everything_is_looked_at(tmp_path):
    names = [check.name for check in examine(tmp_path)]
    assert names == ["Python", "packages", "Java", "pyspark", "pandas", "memory", "disk", "folder", "hashing"]


def test_what_fails_says_how_to_mend_it(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "look", lambda: iter(()))
    monkeypatch.setattr(doctor, "_installed", lambda package: None)
    monkeypatch.setattr(doctor, "available_memory", lambda: 1 << 20)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: Usage(10, 10, 0))
    monkeypatch.setattr(hashlib, "sha3_256", lambda data=b"": hashlib.new("sha3_256", data))
    checks = examine(tmp_path)
    failed = {check.name for check in checks if check.verdict is Verdict.FAIL}
    assert failed == {"packages", "Java", "pyspark"}
    warned = {check.name for check in checks if check.verdict is Verdict.WARN}
    assert warned == {"pandas", "memory", "disk", "hashing"}
    assert all(check.remedy for check in checks if check.verdict is not Verdict.OK)


@pytest.mark.parametrize(
    ("pyspark", "pandas", "verdicts"),
    [
        ("4.3.0", "2.3.3", (Verdict.OK, Verdict.OK)),
        ("4.3.1.dev0", "2.2", (Verdict.OK, Verdict.OK)),
        ("4.2.9", "3.0.0", (Verdict.FAIL, Verdict.WARN)),
        ("4.4.0rc1", "3.1", (Verdict.FAIL, Verdict.WARN)),
    ],
)
def test_versions_are_judged(tmp_path, monkeypatch, pyspark, pandas, verdicts):
    versions = {"pyspark": pyspark, "pandas": pandas}
    monkeypatch.setattr(doctor, "_installed", lambda package: versions.get(package, "1.0"))
    checks = examine(tmp_path)
    assert (found(checks, "pyspark").verdict, found(checks, "pandas").verdict) == verdicts


def test_a_java_that_will_not_do_is_named_with_the_reason(tmp_path, monkeypatch):
    bad = java.Java("PATH", Path("/usr/bin/java"), (25, 0, 1), java.fault_of((25, 0, 1)))
    monkeypatch.setattr(java, "look", lambda: iter([bad]))
    check = found(examine(tmp_path), "Java")
    assert check.verdict is Verdict.FAIL
    assert "JDK-8377811" in check.detail
    assert "trueline[jdk]" in check.remedy


def test_a_folder_that_does_not_exist_is_judged_by_the_one_above_it(tmp_path):
    checks = examine(tmp_path / "a" / "b")
    assert str(tmp_path) in found(checks, "folder").detail
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_fails(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    assert found(examine(tmp_path), "folder").verdict is Verdict.FAIL


def test_looking_imports_nothing_heavy(tmp_path):
    code = (
        "import sys; from trueline.workspace.doctor import examine; examine(sys.argv[1]);"
        "print(sorted({'pyspark', 'pandas', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=os.environ
    )
    assert done.stdout.strip() == "[]", done.stderr
