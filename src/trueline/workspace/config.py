"""The file `trueline.toml`: what makes a folder a workspace, and its settings."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from trueline.errors import ConfigError, InputError, UnsupportedVersion
from trueline.workspace.duration import seconds

if TYPE_CHECKING:
    from trueline.readers import Limits

FILE: Final = "trueline.toml"
FORMAT: Final = 1
MAX_BYTES: Final = 1 << 20
NEW: Final = f"""# A Trueline workspace. `trueline config list` shows what can be set here.
format = {FORMAT}
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set: its default, what it means, and how text becomes its value."""

    default: Any
    meaning: str
    read: Callable[[Any], Any]


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
            raise InputError(f"{value!r} is not understood", remedy=f"write it like {example}")
        return value

    return read


_UNITS: Final = {
    "": 1,
    "b": 1,
    **{
        f"{p}{b}": (1000 if b == "b" else 1024) ** n
        for n, p in enumerate("kmg", start=1)
        for b in ("ib", "b")
    },
}


@lru_cache(maxsize=64, typed=True)
def size_of(value: Any) -> int:
    """Return the bytes that a size means.

    >>> size_of("64MiB"), size_of("1 kB"), size_of(4096)
    (67108864, 1000, 4096)
    """
    found = re.fullmatch(r"([1-9]\d{0,14}) ?([kmg]i?b|b|)", str(value).strip().lower())
    if found is None or isinstance(value, bool):
        raise InputError(f"{value!r} is not a size", remedy="write it like 64MiB")
    return int(found.group(1)) * int(_UNITS[found.group(2)])


def _size(value: Any) -> str:
    size_of(value)
    return str(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"[1-9]\d{0,8}", str(value)):
        raise InputError(f"{value!r} is not a number from 1 on", remedy="write it like 10000")
    return int(value)


def limits_of(settings: Mapping[str, Any]) -> Limits:
    """Return what a workspace's settings allow to be in memory at once; the defaults where there are none."""
    from trueline.readers import Limits

    said = {
        "columns": settings.get("limits.columns"),
        "record_bytes": settings.get("limits.record_bytes"),
        "batch_bytes": settings.get("limits.batch_bytes"),
    }
    return Limits(**{name: size_of(value) for name, value in said.items() if value is not None})


SETTINGS: Final[Mapping[str, Setting]] = {
    "gc.older_than": Setting("1h", "how long gc spares what nothing refers to", _duration),
    "limits.batch_bytes": Setting(
        "128MiB", "memory for the rows of a Parquet file or slice that are decoded at once", _size
    ),
    "limits.columns": Setting(10_000, "how many columns a file may have", _count),
    "limits.record_bytes": Setting("16MiB", "how long one record of a CSV, JSON or text file may be", _size),
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
    ),
    "spark.remote": Setting(
        None,
        "the address of a Spark Connect server; it comes before spark.master",
        _text(r"sc://[^\s/:]\S*", "sc://host:15002"),
    ),
    "storage.durable": Setting(
        True, "false leaves out syncing to disk: a power cut may then lose commits", _flag
    ),
}


class Config(Mapping[str, Any]):
    """The settings of a workspace by dotted name; what is not set has its default.

    >>> config = Config("format = 1", lambda text: None)
    >>> config["gc.older_than"]
    '1h'
    >>> config.set("gc.older_than", "2d")
    >>> config["gc.older_than"], config.is_set("gc.older_than")
    ('2d', True)
    """

    def __init__(self, text: str, write: Callable[[str], None], location: str = FILE) -> None:
        self._write = write
        self._location = location
        self._text = text
        self._values = self._parse(text)

    def __getitem__(self, name: str) -> Any:
        setting = self._setting(name)
        return self._values.get(name, setting.default)

    def __iter__(self) -> Iterator[str]:
        return iter(SETTINGS)

    def __len__(self) -> int:
        return len(SETTINGS)

    def __repr__(self) -> str:
        return f"Config({dict(self)!r})"

    def is_set(self, name: str) -> bool:
        """Say whether a setting was set here, or has its default."""
        self._setting(name)
        return name in self._values

    def meaning(self, name: str) -> str:
        """Say what a setting does."""
        return self._setting(name).meaning

    def set(self, name: str, value: Any) -> None:
        """Change a setting and write the file; comments and other lines stay."""
        setting = self._setting(name)
        wanted = self._values | {name: _checked(name, setting, value)}
        try:
            text = edited(self._text, name, wanted[name])
            values = self._parse(text)
        except ConfigError:
            values = {}
        if values != wanted:
            # The file is written in a way that cannot be edited line by line.
            text, values = written(wanted), wanted
        self._write(text)
        self._text, self._values = text, values

    def _setting(self, name: str) -> Setting:
        if name not in SETTINGS:
            raise ConfigError(
                f"there is no setting {name!r}", remedy=f"settings are: {', '.join(SETTINGS)}", name=name
            )
        return SETTINGS[name]

    def _parse(self, text: str) -> dict[str, Any]:
        try:
            document = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise self._broken(f"is not TOML: {error}") from None
        version = document.pop("format", None)
        if type(version) is not int:
            raise self._broken("does not say which format the workspace has")
        if version != FORMAT:
            raise UnsupportedVersion(
                f"{self._location} says format {version}; this software reads format {FORMAT}",
                remedy="install a version of trueline that knows it"
                if version > FORMAT
                else "export it anew",
                version=version,
            )
        values = dict(_flat(document))
        return {name: _checked(name, self._setting(name), value) for name, value in values.items()}

    def _broken(self, how: str) -> ConfigError:
        return ConfigError(
            f"{self._location} {how}",
            remedy=f"mend it by hand; a line `format = {FORMAT}` is all it needs, the datasets are untouched",
            path=self._location,
        )


def _checked(name: str, setting: Setting, value: Any) -> Any:
    try:
        return setting.read(value)
    except InputError as error:
        raise ConfigError(f"{name}: {error.problem}", remedy=error.remedy, name=name) from None


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{above}.{key}" if above else key
        if isinstance(value, dict):
            yield from _flat(value, name)
        else:
            yield name, value


def edited(text: str, name: str, value: Any) -> str:
    r"""Return TOML text with one value set, every other line as it was.

    >>> edited("format = 1\n[gc]\n# soon\nolder_than = '1h'\n", "gc.older_than", "2h")
    'format = 1\n[gc]\n# soon\nolder_than = "2h"\n'
    """
    section, _, key = name.rpartition(".")
    line = f"{key} = {_toml(value)}"
    lines = text.splitlines()
    start = next((i for i, found in enumerate(lines) if found.strip() == f"[{section}]"), None)
    if start is None:
        return "\n".join([*lines, "", f"[{section}]", line]) + "\n"
    end = next((i for i in range(start + 1, len(lines)) if lines[i].lstrip().startswith("[")), len(lines))
    for i in range(start + 1, end):
        if lines[i].partition("=")[0].strip() == key:
            lines[i] = line
            break
    else:
        lines.insert(start + 1, line)
    return "\n".join(lines) + "\n"


def written(values: Mapping[str, Any]) -> str:
    """Return the text of a new file with these values."""
    text = NEW
    for name, value in values.items():
        text = edited(text, name, value)
    return text


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    import json

    # Basic strings of TOML are those of JSON for what settings hold.
    return json.dumps(str(value), ensure_ascii=False)
