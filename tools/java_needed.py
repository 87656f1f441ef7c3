"""Say whether `make setup` must install a Java: prints `jdk` if none here is good enough, else nothing.

Runs before anything is installed, so it uses the standard library only. Spark 4.3 runs on Java 17 (from
17.0.11), 21 and 25 (from 25.0.3: earlier ones can corrupt Parquet under G1, JDK-8377811).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

GOOD = {17: (17, 0, 11), 21: (21, 0, 0), 25: (25, 0, 3)}


def version_of(text: str) -> tuple[int, int, int] | None:
    """Read the version out of what `java -version` prints.

    >>> version_of('openjdk version "17.0.15" 2025-04-15')
    (17, 0, 15)
    >>> version_of('openjdk version "21" 2023-09-19')
    (21, 0, 0)
    >>> version_of('java version "1.8.0_401"')
    (1, 8, 0)
    """
    found = re.search(r'version "(\d+)(?:\.(\d+))?(?:\.(\d+))?', text)
    if not found:
        return None
    major, minor, patch = (int(part or 0) for part in found.groups())
    return major, minor, patch


def is_good(version: tuple[int, int, int]) -> bool:
    """Tell whether Spark 4.3 runs safely on this version.

    >>> [is_good(v) for v in [(17, 0, 11), (17, 0, 9), (21, 0, 1), (25, 0, 2), (25, 0, 3), (1, 8, 0)]]
    [True, False, True, False, True, False]
    """
    return version[0] in GOOD and version >= GOOD[version[0]]


def candidates() -> list[tuple[str, str]]:
    """List where a Java may be, best first: (how it was found, path)."""
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", str(Path(home) / "bin" / "java")))
    if path := shutil.which("java"):
        found.append(("PATH", path))
    return found


def ask(java: str) -> tuple[int, int, int] | None:
    """Run `java -version`; None when it cannot be run or says nothing we know."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return version_of(done.stderr + done.stdout)


def main() -> int:
    """Print the extra that is needed on stdout and the reason on stderr."""
    for how, java in candidates():
        version = ask(java)
        shown = ".".join(map(str, version)) if version else "not runnable"
        if version and is_good(version):
            print(f"Java {shown} found through {how}: used as it is.", file=sys.stderr)
            return 0
        print(f"Java {shown} found through {how}: Spark needs 17.0.11+, 21 or 25.0.3+.", file=sys.stderr)
    print("No usable Java found: installing one into .venv (extra `jdk`).", file=sys.stderr)
    print("jdk")
    return 0


if __name__ == "__main__":
    sys.exit(main())
