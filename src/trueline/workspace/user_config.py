"""The user's own settings: the environment, and one file that no workspace can write.

The file also remembers what its user has confirmed of workspaces: tables
`[[trust]]` of workspace, setting and value.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any, Final

from trueline.chain.store.files import Files, refusal
from trueline.chain.store.folders import inside
from trueline.credentials import masked
from trueline.errors import ConfigError, StorageReadOnly, UnsafeWorkspace
from trueline.workspace.settings import SETTINGS, Level, checked, setting_named, variable
from trueline.workspace.settings_file import FILE, PRIVATE, edited, parsed, read_settings, to_toml

_TRUST: Final = "trust"
# How the names begin under which functions of derived datasets were confirmed.
FUNCTION: Final = "function."
_KEYS: Final = ("workspace", "name", "value", "digest")
_FILES: Final = Files()


def user_file() -> Path | None:
    """Return where the user's settings are, `$XDG_CONFIG_HOME/trueline/config.toml`; None without a home."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    # A relative path there counts as not set, and a user may have no home at all (in a container).
    base = Path(given if os.path.isabs(given) else os.path.expanduser("~/.config"))  # noqa: PTH111, PTH117
    return base / "trueline" / "config.toml" if base.is_absolute() else None


class UserConfig:
    """What this user has set and confirmed; the environment comes before the file.

    >>> UserConfig(Path("nowhere/config.toml")).get("gc.older_than") is None
    True
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = user_file() if path is None else path
        self._load()

    def _load(self) -> None:
        self._text = self._read()
        document = parsed(self._text, self._broken)
        trust = document.pop(_TRUST, [])
        if not isinstance(trust, list) or not all(_is_trust(each) for each in trust):
            raise self._broken(f"has a table [[{_TRUST}]] that was not written here")
        self._trust: list[dict[str, str]] = trust
        self._values = {name: checked(name, value) for name, value in document.items()}

    def _read(self) -> str:
        try:
            return (read_settings(self.path) or "") if self.path is not None else ""
        except StorageReadOnly:
            # Somebody who became another user has the home of the first: nothing is set and trusted then.
            return ""

    def get(self, name: str) -> tuple[Any, Level] | None:
        """Return what the user has set, and where; None if nothing."""
        setting_named(name)
        given = os.environ.get(variable(name))
        if given:
            try:
                return checked(name, given), Level.ENVIRONMENT
            except ConfigError as error:
                raise ConfigError(
                    f"{variable(name)} of the environment: {error.problem}", remedy=error.remedy, name=name
                ) from None
        return (self._values[name], Level.USER) if name in self._values else None

    def value(self, name: str) -> Any:
        """Return what counts where there is no workspace."""
        found = self.get(name)
        return setting_named(name).default if found is None else found[0]

    def set(self, name: str, value: Any) -> None:
        """Change a setting in the user's file; a list gets one more."""
        setting = setting_named(name)
        wanted = checked(name, value)
        with self._alone():
            if isinstance(setting.default, tuple):
                wanted = tuple(dict.fromkeys((*self._values.get(name, ()), *wanted)))
            self._write(edited(self._text, name, wanted), self._values | {name: wanted}, self._trust)

    # --- what was confirmed -----------------------------------------------------------

    def is_trusted(self, location: str, name: str, value: Any) -> bool:
        """Say whether this value of this workspace's file was confirmed."""
        entry = _entry(location, name, value)
        return any(each == entry for each in self._trust)

    def trust(self, location: str, name: str, value: Any) -> None:
        """Remember that a value of a workspace's file was confirmed; it takes the place of the one before."""
        self._load()
        if self.is_trusted(location, name, value):
            return
        entry = _entry(location, name, value)
        with self._alone():
            same = [each for each in self._trust if _about(each) == _about(entry)]
            kept = [each for each in self._trust if _about(each) != _about(entry)]
            text = "" if same else self._text + _table(entry)
            self._write(text, self._values, [*kept, entry])

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process after another change the file, each as the one before has left it."""
        if self.path is None:
            raise ConfigError("this user has no home folder", remedy="set XDG_CONFIG_HOME to a folder")
        path = self.path.resolve()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with inside(path.parent).folder() as folder:
                lock = _FILES.open_lock(f".{path.name}.lock", folder)
        except OSError as error:
            raise refusal(error, "write", str(path)) from error
        try:
            _FILES.lock(lock, exclusive=True)
            self._load()
            yield
        finally:
            _FILES.close(lock)

    def _write(self, text: str, values: dict[str, Any], trust: list[dict[str, str]]) -> None:
        """Write the text if it says what it should, else the whole file again."""
        try:
            document = parsed(text, self._broken)
            found = document.pop(_TRUST, [])
            says = {name: checked(name, value) for name, value in document.items()} == values
        except ConfigError:
            says, found = False, None
        if not says or found != trust:
            text = "# Settings of this user for Trueline; `trueline config list` shows them.\n"
            for name, value in values.items():
                text = edited(text, name, value)
            text += "".join(_table(entry) for entry in trust)
        assert self.path is not None
        # A link to where the file is kept (with other settings, say) stays a link.
        path = self.path.resolve()
        try:
            inside(path).write(text.encode(), replace=True, mode=0o600)
        except OSError as error:
            raise refusal(error, "write", str(path)) from error
        self._load()

    def _broken(self, how: str) -> ConfigError:
        return ConfigError(f"{self.path} {how}", remedy="correct or remove it by hand", path=str(self.path))

    # --- folders of others --------------------------------------------------------------

    def check_owner(self, folder: Path) -> None:
        """Refuse a workspace that was found and not named, and belongs to somebody else."""
        theirs = next((path for path in _parts(folder) if not _is_ours(path)), None)
        if theirs is None or any(_covers(each, folder) for each in self.value("safe.directory")):
            return
        raise UnsafeWorkspace(
            f"{folder} is a workspace in a folder above, and {theirs} belongs to another user",
            remedy=f"name it with -C {quote(str(folder))} to use it once; "
            f"`trueline config set --user safe.directory {quote(str(folder))}` lets it be found",
            path=str(folder),
        )


def _parts(folder: Path) -> list[Path]:
    return [folder, *(folder / name for name in (FILE, PRIVATE) if os.path.lexists(folder / name))]


def _is_ours(path: Path) -> bool:
    """Say whether a file is this user's, or of the user who became root by sudo; links and their ends."""
    if not hasattr(os, "geteuid"):
        return True
    us = {os.geteuid()}
    behind = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and behind.isascii() and behind.isdecimal():
        us.add(int(behind))
    try:
        return path.lstat().st_uid in us and path.stat().st_uid in us
    except OSError:
        return False


def _covers(allowed: str, folder: Path) -> bool:
    """Say whether an entry of safe.directory is about a folder, as git reads it: *, a path, or path/*."""
    if allowed == "*":
        return True
    within = allowed.endswith("/*")
    path = Path(os.path.realpath(allowed.removesuffix("/*")))
    real = Path(os.path.realpath(folder))
    return real == path or (within and path in real.parents)


def _entry(location: str, name: str, value: Any) -> dict[str, str]:
    """Say what was confirmed; the value may hold a key, so its digest is what counts."""
    where = location if "://" in location else os.path.realpath(location)
    digest = hashlib.sha3_256(str(value).encode()).hexdigest()
    return {"workspace": where, "name": name, "value": masked(str(value)), "digest": digest}


def _about(entry: dict[str, str]) -> tuple[str, str]:
    return entry["workspace"], entry["name"]


def _is_trust(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and set(entry) == set(_KEYS)
        and all(isinstance(value, str) for value in entry.values())
        and (entry["name"] in SETTINGS or entry["name"].startswith(FUNCTION))
    )


def _table(entry: dict[str, str]) -> str:
    lines = "".join(f"{key} = {to_toml(entry[key])}\n" for key in _KEYS)
    return f"\n[[{_TRUST}]]\n{lines}"
