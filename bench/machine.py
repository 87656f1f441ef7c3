"""The machine, as far as it matters to a reader: no names, no paths."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.timing import Samples, timed

BYTES_PER_BLOCK = 6 << 10  # one 4 KiB file system block, its inode and its row in the index
SLOW_CREATE = 100e-6


def describe(folder: Path) -> dict[str, object]:
    """Describe cores, memory, Python and disk."""
    create, sync = _disk(folder)
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(_memory() / (1 << 30)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "file_system": file_system(folder),
        "create_s": create.median,
        "fsync_s": sync.median,
        "load": round(os.getloadavg()[0], 1),
    }


def in_words(about: dict[str, object]) -> str:
    """Say it in one line, with a warning where the disk is not at its best."""
    create, sync = float(str(about["create_s"])), float(str(about["fsync_s"]))
    line = (
        f"{about['cores']} cores, {about['memory_gib']} GiB, {about['system']}, Python {about['python']}, "
        f"{about['file_system']} (creating a file {create * 1e6:.0f} µs, fsync {sync * 1e3:.2f} ms), "
        f"load before the run {about['load']}"
    )
    if create > SLOW_CREATE:
        # Seen with perf: recently_deleted() in ext4's inode allocation, 0.3 to 4 ms per file.
        line += (
            "\nCreating files is slow now, for ours and the peers alike. ext4 without a journal is, for "
            "minutes after many files were removed: wait, or set TMPDIR to another file system."
        )
    return line


def file_system(folder: Path) -> str:
    """Name the type of the file system a folder is on."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    found = ("", "unknown")
    for line in lines:
        _, mount, kind, *_ = line.split(" ")
        if folder.resolve().is_relative_to(mount) and len(mount) >= len(found[0]):
            found = (mount, kind)
    return found[1]


def lacks_room(folder: Path, blocks: int) -> str | None:
    """Say what is missing to write so many blocks, None if there is room."""
    needed, free = blocks * BYTES_PER_BLOCK, shutil.disk_usage(folder).free
    if needed > free:
        return f"{blocks:,} blocks need {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free (set TMPDIR)"
    inodes = os.statvfs(folder)
    if inodes.f_files and inodes.f_favail < blocks * 1.1:
        return f"{blocks:,} blocks need as many inodes, {inodes.f_favail:,} are free (set TMPDIR)"
    return None


def lacks_bytes(folder: Path, needed: int) -> str | None:
    """Say what is missing to write so many bytes, None if there is room."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        return f"it needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free (set TMPDIR)"
    return None


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _disk(folder: Path, count: int = 100) -> tuple[Samples, Samples]:
    """Time the creation of small files and their fsync."""
    create, sync = [], []
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        for number in range(count):
            start = time.perf_counter()
            file = os.open(f"{inside}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            create.append(time.perf_counter() - start)
            os.write(file, bytes(1_000))
            sync.append(timed(partial(os.fsync, file)))
            os.close(file)
    return Samples(tuple(create)), Samples(tuple(sync))
