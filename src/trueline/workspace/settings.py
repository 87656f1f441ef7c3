"""What can be set: each setting's default, what it means, who decides it, and how text becomes its value."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, Final

from trueline.dataset.duration import seconds
from trueline.errors import ConfigError, InputError
from trueline.limits import size_of


class Decides(StrEnum):
    """Who decides about a setting: anyone, the user (a workspace may propose a value), or the user alone."""

    ANYONE = "anyone"
    PROPOSED = "proposed"
    USER = "user"


class Level(IntEnum):
    """Where a value comes from; the first that has one counts."""

    ENVIRONMENT = 0
    USER = 1
    WORKSPACE = 2
    DEFAULT = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set: its default, what it means, and how text becomes its value."""

    default: Any
    meaning: str
    read: Callable[[Any], Any]
    decides: Decides = Decides.ANYONE
    # What a workspace may propose and is taken without asking.
    harmless: str = ""

    def is_harmless(self, value: Any) -> bool:
        """Say whether a value of a workspace's own file may be used without asking."""
        return self.decides is Decides.ANYONE or re.fullmatch(self.harmless, str(value)) is not None


def _duration(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{value!r} is not a duration", remedy="write it like 1h or 7d")
    seconds(value)
    return str(value)


def _flag(value: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    found = value if isinstance(value, bool) else words.get(str(value).lower())
    if found is None:
        raise InputError(f"{value!r} is neither true nor false", remedy="write true or false")
    return found


def _text(pattern: str, example: str) -> Callable[[Any], str]:
    """Return what reads text of a form."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise InputError(f"{value!r} is not valid", remedy=f"write it like {example}")
        return value

    return read


def _paths(value: Any) -> tuple[str, ...]:
    """Read a list of folders; text holds several as the environment does."""
    found = value.split(os.pathsep) if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(
        isinstance(each, str) and (each == "*" or Path(each).is_absolute()) for each in found
    ):
        raise InputError(f"{value!r:.200} is not a list of folders", remedy="give whole paths, or *")
    return tuple(found)


def _size(value: Any) -> str:
    size_of(value)
    return str(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"[1-9]\d{0,8}", str(value)):
        raise InputError(f"{value!r} is not a number of at least 1", remedy="write it like 10000")
    return int(value)


SETTINGS: Final[Mapping[str, Setting]] = {
    "gc.older_than": Setting("1h", "how long gc keeps what nothing refers to", _duration),
    "http.allow_private": Setting(
        False,
        "true lets redirects go to loopback and private addresses",
        _flag,
        Decides.USER,
    ),
    "limits.batch_bytes": Setting(
        "128MiB", "memory for the rows of a Parquet file or slice that are decoded at once", _size
    ),
    "limits.columns": Setting(10_000, "how many columns a file may have", _count),
    "limits.record_bytes": Setting("16MiB", "how long one record of a CSV, JSON or text file may be", _size),
    "safe.directory": Setting(
        (),
        "folders of other users whose workspaces may be found by looking upwards; * for all",
        _paths,
        Decides.USER,
    ),
    "spark.driver.memory": Setting(
        None,
        "memory of the Spark that is started here; without it Spark's own default",
        _text(r"[1-9]\d{0,6}[kmgt]b?", "4g"),
    ),
    "spark.master": Setting(
        "local[*]",
        "where Spark runs: local[N] or the address of a cluster",
        _text(
            r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|(spark|k8s)://\S+|local-cluster\[\S+\]|yarn", "local[4]"
        ),
        Decides.PROPOSED,
        # It runs on this machine, with this user's rights, and sends nothing away.
        harmless=r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?",
    ),
    "spark.remote": Setting(
        None,
        "the address of a Spark Connect server; it comes before spark.master",
        _text(r"sc://[^\s/:]\S*", "sc://host:15002"),
        Decides.PROPOSED,
    ),
    "spark.tasks": Setting(
        "auto",
        "where files, views, checks and copies are worked on: auto (in Spark's tasks where a cluster's "
        "session is at hand), always, or never",
        _text("auto|always|never", "auto, always or never"),
    ),
    "storage.durable": Setting(
        True, "false leaves out syncing to disk: a power cut may then lose commits", _flag
    ),
    "views.engine": Setting(
        "auto",
        "where views are computed: process, spark, or auto by what they rest on",
        _text("auto|process|spark", "auto, process or spark"),
    ),
}


def setting_named(name: str) -> Setting:
    """Return a setting by its dotted name."""
    if name not in SETTINGS:
        near = get_close_matches(str(name)[:200], SETTINGS, n=1)
        raise ConfigError(
            f"there is no setting {name!r:.200}",
            remedy=f"did you mean {near[0]}?" if near else f"settings are: {', '.join(SETTINGS)}",
            name=name,
        )
    return SETTINGS[name]


def variable(name: str) -> str:
    """Return the variable of the environment that holds a setting.

    >>> variable("spark.master")
    'TRUELINE_SPARK_MASTER'
    """
    return f"TRUELINE_{name.upper().replace('.', '_')}"


def checked(name: str, value: Any) -> Any:
    """Return the value of a setting as it is used."""
    try:
        return setting_named(name).read(value)
    except InputError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{name}: {error.problem}", remedy=error.remedy, name=name) from None
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{name} is not valid", remedy="`trueline config list` says what it means", name=name
        ) from None
