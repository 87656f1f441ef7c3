"""Looking at this machine: what is there, what is missing, and how to fix it."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from trueline.workspace.locations import DATASETS
from trueline.workspace.settings_file import PRIVATE

_GIB: Final = 1 << 30
_SPARK: Final = (4, 3)
_HASHED: Final = 8 << 20


class Verdict(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ""


def examine(folder: str | os.PathLike[str]) -> list[DoctorCheck]:
    """Check this machine for a workspace in a folder; the folder need not exist."""
    path = Path(folder)
    steps: tuple[Callable[[], Iterator[DoctorCheck]], ...] = (
        _python,
        _packages,
        _java,
        _pyspark,
        _pandas,
        _memory,
        lambda: _disk(path),
        lambda: _writable(path),
        lambda: _links(path),
        _hashing,
    )
    return [check for step in steps for check in step()]


def _python() -> Iterator[DoctorCheck]:
    shown = sys.version.split()[0]
    good = sys.version_info >= (3, 11)
    yield DoctorCheck(
        "Python",
        Verdict.OK if good else Verdict.FAIL,
        f"{shown} at {sys.executable}",
        "" if good else "use Python 3.11 or newer",
    )


def _packages() -> Iterator[DoctorCheck]:
    wanted = ("pyarrow", "numpy", "flatbuffers", "cryptography", "pyyaml", "obstore")
    missing = [name for name in wanted if _installed(name) is None]
    if missing:
        yield DoctorCheck(
            "packages", Verdict.FAIL, f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}"
        )
    else:
        yield DoctorCheck(
            "packages", Verdict.OK, f"pyarrow {_installed('pyarrow')}, numpy {_installed('numpy')}"
        )


def _java() -> Iterator[DoctorCheck]:
    from trueline.spark import java

    found = list(java.look())
    best = next((each for each in found if each.is_good), None)
    if best is not None:
        yield DoctorCheck("Java", Verdict.OK, str(best))
        return
    faults = "; ".join(f"{each}: {each.fault}" for each in found) or "none found"
    yield DoctorCheck(
        "Java",
        Verdict.FAIL,
        faults,
        f"install Java {java.WANTED} and set JAVA_HOME, or pip install 'trueline[jdk]'",
    )


def _pyspark() -> Iterator[DoctorCheck]:
    found = _installed("pyspark")
    fix = "pip install 'trueline[spark]'"
    if found is None:
        yield DoctorCheck("pyspark", Verdict.FAIL, "not installed", fix)
    elif _numbers(found)[:2] != _SPARK:
        yield DoctorCheck("pyspark", Verdict.FAIL, f"{found}, but 4.3 is needed", fix)
    else:
        yield DoctorCheck("pyspark", Verdict.OK, found)


def _pandas() -> Iterator[DoctorCheck]:
    found = _installed("pandas")
    if found is None:
        yield DoctorCheck(
            "pandas", Verdict.WARN, "not installed; pandas frames cannot be made", "pip install 'pandas<3'"
        )
    elif _numbers(found)[0] >= 3:
        yield DoctorCheck(
            "pandas",
            Verdict.WARN,
            f"{found}: pyspark 4.3 does not fully support it",
            "pip install 'pandas<3'",
        )
    else:
        yield DoctorCheck("pandas", Verdict.OK, found)


def _memory() -> Iterator[DoctorCheck]:
    size = available_memory()
    if size is None:
        yield DoctorCheck("memory", Verdict.WARN, "cannot be determined on this system")
    elif size < 2 * _GIB:
        yield DoctorCheck(
            "memory",
            Verdict.WARN,
            f"{size / _GIB:.1f} GiB available",
            "Spark needs 2 GiB or more: close other programs",
        )
    else:
        yield DoctorCheck("memory", Verdict.OK, f"{size / _GIB:.1f} GiB available")


def available_memory() -> int | None:
    """Return how much memory a new process may use, the limit of a container included."""
    found: list[int] = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        pass
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        if limit != "max":
            found.append(max(0, int(limit) - used))
    except (OSError, ValueError):
        pass
    if not found and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists() and path.parent != path:
        path = path.parent
    return path


def _disk(path: Path) -> Iterator[DoctorCheck]:
    place = _existing(path)
    free = shutil.disk_usage(place).free
    good = free >= _GIB
    yield DoctorCheck(
        "disk",
        Verdict.OK if good else Verdict.WARN,
        f"{free / _GIB:.1f} GiB free at {place}",
        "" if good else "free some space; `trueline gc` removes what nothing refers to",
    )


def _writable(path: Path) -> Iterator[DoctorCheck]:
    place = _existing(path)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        yield DoctorCheck(
            "folder",
            Verdict.FAIL,
            f"{place} cannot be written: {error.strerror}",
            "choose another folder, or change its permissions",
        )
    else:
        yield DoctorCheck("folder", Verdict.OK, f"{place} can be written")


def _links(path: Path) -> Iterator[DoctorCheck]:
    """Look for links in the folders of a workspace, which commands refuse."""
    found: list[str] = []
    for top in (path / PRIVATE, path / DATASETS):
        if top.is_symlink():
            found.append(str(top))
            continue
        for folder, folders, files in os.walk(top):
            links = [Path(folder, name) for name in (*folders, *files) if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114 (thousands of files)
            found += [str(each) for each in links if not _is_second_name(each)]
    if found:
        yield DoctorCheck(
            "links",
            Verdict.WARN,
            f"{found[0]} is a symbolic link" + (f", and {len(found) - 1:,} more" if found[1:] else ""),
            "it is not followed: replace it with what it points to, or remove it",
        )


def _is_second_name(link: Path) -> bool:
    """Say whether a link is another name of a dataset beside it, which is allowed."""
    return link.parent.name == DATASETS and link.resolve().parent == link.parent.resolve()


def _hashing() -> Iterator[DoctorCheck]:
    """OpenSSL hashes at 400 MB/s and more; Python's own fallback is several times slower."""
    backed = "openssl" in getattr(hashlib.sha3_256, "__name__", "")
    started = time.perf_counter()
    hashlib.sha3_256(bytes(_HASHED)).digest()
    speed = _HASHED / (time.perf_counter() - started) / 1e6
    detail = f"sha3-256 {'by OpenSSL' if backed else 'without OpenSSL'}, {speed:,.0f} MB/s"
    yield DoctorCheck(
        "hashing",
        Verdict.OK if backed else Verdict.WARN,
        detail,
        "" if backed else "use a Python built with OpenSSL 1.1.1 or newer",
    )


def _installed(package: str) -> str | None:
    """Return a package's version without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    parts = []
    for part in text.split(".")[:3]:
        digits = part[: next((i for i, c in enumerate(part) if not c.isdigit()), len(part))]
        parts.append(int(digits or 0))
    return tuple(parts)
