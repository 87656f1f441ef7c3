"""The text of a file of settings: reading it, parsing it, setting one value in it."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from trueline.chain.store.files import refusal
from trueline.chain.store.folders import Inside
from trueline.errors import ConfigError

# What a workspace in a folder has beside its datasets: its settings, and what is private to this machine.
FILE: Final = "trueline.toml"
PRIVATE: Final = ".trueline"
FORMAT: Final = 1
MAX_BYTES: Final = 1 << 20
# The parser keeps every beginning of a dotted name, so memory grows with the square of its dots.
_MAX_DOTS: Final = 4000
NEW: Final = f"""# A Trueline workspace. `trueline config list` shows what can be set here.
format = {FORMAT}
"""


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
    except IsADirectoryError:
        raise broken("is not a file") from None
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
    """Return the values of TOML text by dotted name; whatever is wrong with it is reported by `broken`."""
    if text.count(".") > _MAX_DOTS:
        raise broken("is too large for a configuration")
    try:
        return dict(_flat(tomllib.loads(text)))
    except (ValueError, RecursionError, OverflowError) as error:
        # A number of thousands of digits, or brackets a thousand deep, are errors of Python, not of TOML.
        how = str(error) if isinstance(error, tomllib.TOMLDecodeError) else type(error).__name__
        raise broken(f"is not TOML: {how}") from None


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
