"""Settings: what can be set, the file `trueline.toml` of a workspace, and who decides in which order."""

from __future__ import annotations

import os
import re
import shlex
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from trueline import console as consoles
from trueline.chain.files import refusal
from trueline.chain.inside import Inside
from trueline.credentials import masked_text
from trueline.errors import (
    ConfigError,
    InputError,
    SettingNotConfirmed,
    UnsupportedVersion,
    visible,
)
from trueline.workspace.duration import seconds

if TYPE_CHECKING:
    from trueline.readers import Limits
    from trueline.workspace.user_config import UserConfig

FILE: Final = "trueline.toml"
FORMAT: Final = 1
MAX_BYTES: Final = 1 << 20
# The parser keeps every beginning of a dotted name, so memory grows with the square of its dots.
_MAX_DOTS: Final = 4000
NEW: Final = f"""# A Trueline workspace. `trueline config list` shows what can be set here.
format = {FORMAT}
"""


class Decides(StrEnum):
    """Who decides about a setting: anyone, the user whom a workspace may propose a value, the user alone."""

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
            raise InputError(f"{value!r} is not understood", remedy=f"write it like {example}")
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
    "http.allow_private": Setting(
        False,
        "true lets redirects lead to loopback and private addresses",
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
    "storage.durable": Setting(
        True, "false leaves out syncing to disk: a power cut may then lose commits", _flag
    ),
}


class Config(Mapping[str, Any]):
    """The settings of a workspace by dotted name.

    The environment comes first (`TRUELINE_SPARK_MASTER` for `spark.master`),
    then the user's own file, then `trueline.toml`, then the default. What a
    workspace only proposes counts once the user has confirmed it.

    >>> config = Config("format = 1", lambda text: None)
    >>> config["gc.older_than"]
    '1h'
    >>> config.set("gc.older_than", "2d")
    >>> config["gc.older_than"], config.is_set("gc.older_than")
    ('2d', True)
    """

    def __init__(
        self,
        text: str,
        write: Callable[[str], None],
        location: str = FILE,
        user: UserConfig | None = None,
    ) -> None:
        self._write = write
        self._location = location
        self._user = user
        self._text = text
        self._values = self._parse(text)

    def __getitem__(self, name: str) -> Any:
        return self._found(name)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(SETTINGS)

    def __len__(self) -> int:
        return len(SETTINGS)

    def __repr__(self) -> str:
        return masked_text(f"Config({dict(self)!r})")

    @property
    def user(self) -> UserConfig:
        """The user's own settings, read when they are first needed."""
        if self._user is None:
            from trueline.workspace.user_config import UserConfig

            self._user = UserConfig()
        return self._user

    def is_set(self, name: str) -> bool:
        """Say whether a setting was set in the workspace's file."""
        setting_named(name)
        return name in self._values

    def level(self, name: str) -> Level:
        """Say where the value of a setting comes from; a proposal counts as the workspace's."""
        return Level.WORKSPACE if self.is_open(name) else self._found(name)[1]

    def meaning(self, name: str) -> str:
        """Say what a setting does."""
        return setting_named(name).meaning

    def set(self, name: str, value: Any) -> None:
        """Change a setting and write the file; comments and other lines stay.

        Who sets it has confirmed it.
        """
        setting = setting_named(name)
        if setting.decides is Decides.USER:
            raise _of_the_user(name, self._location)
        wanted = self._values | {name: checked(name, value)}
        try:
            text = edited(self._text, name, wanted[name])
            values = self._parse(text)
        except ConfigError:
            values = {}
        if values != wanted:
            # The file is written in a way that cannot be edited line by line.
            text, values = written(wanted), wanted
        if not setting.is_harmless(wanted[name]):
            self.user.trust(self._location, name, wanted[name])
        self._write(text)
        self._text, self._values = text, values

    # --- proposals --------------------------------------------------------------------

    def proposed(self, name: str) -> Any:
        """Return what the workspace's own file says, used or not."""
        setting_named(name)
        return self._values.get(name)

    def is_open(self, name: str) -> bool:
        """Say whether the workspace's file proposes a value that would count, were it confirmed."""
        setting = setting_named(name)
        value = self._values.get(name)
        return (
            value is not None
            and not setting.is_harmless(value)
            and self.user.get(name) is None
            and not self.user.is_trusted(self._location, name, value)
        )

    def trust(self, name: str) -> Any:
        """Confirm the value that the workspace's own file proposes; another value is asked about again."""
        value = self.proposed(name)
        if value is None:
            raise ConfigError(
                f"{self._location} does not set {name}",
                remedy=f"trueline config set {name} VALUE sets it",
                name=name,
            )
        if not SETTINGS[name].is_harmless(value):
            self.user.trust(self._location, name, value)
        return value

    def confirmed(self, name: str) -> Any:
        """Return a value that may be used: a proposal is asked about, and an error where nobody answers."""
        if self.is_open(name):
            shown = visible(masked_text(str(self.proposed(name))), lines=False)
            folder = shlex.quote(self._location.removesuffix(f"/{FILE}"))
            question = f"{self._location} sends work of this workspace to {shown} ({name}). Use it?"
            if not consoles.current().confirm(question):
                raise SettingNotConfirmed(
                    f"{self._location} proposes {name} = {shown}, which nobody has confirmed here",
                    remedy=f"`trueline -C {folder} config trust {name}` or ws.config.trust({name!r}) "
                    "confirms it; to work elsewhere give tl.open(..., spark=...), or set "
                    f"{variable('spark.master')}=local[*]",
                    name=name,
                    value=shown,
                    path=self._location,
                )
            self.trust(name)
        return self[name]

    # --- reading ----------------------------------------------------------------------

    def _found(self, name: str) -> tuple[Any, Level]:
        setting = setting_named(name)
        found = self.user.get(name)
        if found is not None:
            return found
        if name in self._values and not self.is_open(name):
            return self._values[name], Level.WORKSPACE
        return setting.default, Level.DEFAULT

    def _parse(self, text: str) -> dict[str, Any]:
        document = parsed(text, self._broken)
        version = document.pop("format", None)
        if type(version) is not int or version.bit_length() > 31:
            raise self._broken("does not say which format the workspace has")
        if version != FORMAT:
            raise UnsupportedVersion(
                f"{self._location} says format {version}; this software reads format {FORMAT}",
                remedy="install a version of trueline that knows it"
                if version > FORMAT
                else "export it anew",
                version=version,
            )
        for name in document:
            if setting_named(name).decides is Decides.USER:
                raise _of_the_user(name, self._location)
        return {name: checked(name, value) for name, value in document.items()}

    def _broken(self, how: str) -> ConfigError:
        return ConfigError(
            f"{self._location} {how}",
            remedy=f"correct it by hand: a line `format = {FORMAT}` is enough, the datasets are untouched",
            path=self._location,
        )


def setting_named(name: str) -> Setting:
    """Return a setting by its dotted name."""
    if name not in SETTINGS:
        raise ConfigError(
            f"there is no setting {name!r:.200}", remedy=f"settings are: {', '.join(SETTINGS)}", name=name
        )
    return SETTINGS[name]


def variable(name: str) -> str:
    """Return the variable of the environment that holds a setting.

    >>> variable("spark.master")
    'TRUELINE_SPARK_MASTER'
    """
    return f"TRUELINE_{name.upper().replace('.', '_')}"


def _of_the_user(name: str, location: str) -> ConfigError:
    return ConfigError(
        f"{name} cannot be set by a workspace, as {location} does",
        remedy=f"take it out there; `trueline config set --user {name} VALUE` sets it for you",
        name=name,
        path=location,
    )


# --- files ------------------------------------------------------------------------------


def read_settings(path: Path | Inside) -> str | None:
    """Return the text of a file of settings, None if there is none; what is not a file is refused at once.

    The user's own file may be a link; that of a workspace, which is `Inside`, may not.
    """

    def broken(how: str) -> ConfigError:
        return ConfigError(f"{path} {how}", remedy="correct or remove it by hand", path=str(path))

    try:
        with path.open() if isinstance(path, Inside) else _opened(path) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise broken("is not a file")
            raw = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise refusal(error, "read", str(path)) from error
    if len(raw) > MAX_BYTES:
        raise broken("is too large for a configuration")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise broken("is not text") from None


def _opened(path: Path) -> BinaryIO:
    # O_NONBLOCK: a named pipe in the place of the file must not stop the reader.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)  # a folder, for example
        raise


def parsed(text: str, broken: Callable[[str], ConfigError]) -> dict[str, Any]:
    """Return the values of TOML text by dotted name; whatever is wrong with it is told by `broken`."""
    if text.count(".") > _MAX_DOTS:
        raise broken("is too large for a configuration")
    try:
        return dict(_flat(tomllib.loads(text)))
    except (ValueError, RecursionError, OverflowError) as error:
        # A number of thousands of digits, or brackets a thousand deep, are errors of Python, not of TOML.
        how = str(error) if isinstance(error, tomllib.TOMLDecodeError) else type(error).__name__
        raise broken(f"is not TOML: {how}") from None


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
            f"{name} is not understood", remedy="`trueline config list` says what it means", name=name
        ) from None


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
    line = f"{key} = {to_toml(value)}"
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


def to_toml(value: Any) -> str:
    """Write a value as TOML does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(to_toml(each) for each in value)}]"
    import json

    # Basic strings of TOML are those of JSON for what settings hold.
    return json.dumps(str(value), ensure_ascii=False)
