"""Settings: what can be set, the file `trueline.toml` of a workspace, and who decides in which order."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trueline import console as consoles
from trueline.credentials import masked_text
from trueline.errors import (
    ConfigError,
    RetryError,
    SettingNotConfirmed,
    UnsupportedVersion,
    visible,
)
from trueline.workspace.settings import SETTINGS, Decides, Level, checked, setting_named, variable
from trueline.workspace.settings_file import FILE, FORMAT, edited, parsed, written

if TYPE_CHECKING:
    from trueline.workspace.user_config import UserConfig


# Replaces the text of settings if it is still the first one; otherwise returns what it is now.
Swap: TypeAlias = Callable[[str, str], str | None]
# How often a change is tried that others come before.
_ATTEMPTS: Final = 100


class Config(Mapping[str, Any]):
    """The settings of a workspace by dotted name.

    The environment comes first (`TRUELINE_SPARK_MASTER` for `spark.master`),
    then the user's own file, then `trueline.toml`, then the default. What a
    workspace only proposes counts once the user has confirmed it.

    >>> config = Config("format = 1", lambda kept, text: None)
    >>> config["gc.older_than"]
    '1h'
    >>> config.set("gc.older_than", "2d")
    >>> config["gc.older_than"], config.is_set("gc.older_than")
    ('2d', True)
    """

    def __init__(
        self,
        text: str,
        swap: Swap,
        location: str = FILE,
        user: UserConfig | None = None,
    ) -> None:
        self._swap = swap
        self._changing = threading.Lock()
        self._location = location
        self._user = user
        self._text = text
        self._values = self._parse(text)
        # What its holder does when a setting was changed here.
        self.on_change: Callable[[], None] = lambda: None

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
        """Change a setting and write the file; comments, other lines and what others have set meanwhile stay.

        Who sets it has confirmed it.
        """
        setting = setting_named(name)
        if setting.decides is Decides.USER:
            raise _of_the_user(name, self._location)
        wanted = checked(name, value)
        if not setting.is_harmless(wanted):
            self.user.trust(self._location, name, wanted)
        with self._changing:
            self._set(name, wanted)
        self.on_change()

    def _set(self, name: str, value: Any) -> None:
        for _ in range(_ATTEMPTS):
            text = self._with(name, value)
            now = self._swap(self._text, text)
            known = text if now is None else now
            self._values, self._text = self._parse(known), known
            if now is None:
                return
        raise RetryError(
            f"{self._location} was changed by others {_ATTEMPTS:,} times in a row",
            remedy="nothing was changed; try again",
            code="SettingsBusy",
        )

    def _with(self, name: str, value: Any) -> str:
        """Return the text with a setting changed."""
        wanted = self._values | {name: value}
        try:
            text = edited(self._text, name, value)
            values = self._parse(text)
        except ConfigError:
            values = {}
        # Otherwise the file is written in a way that cannot be edited line by line.
        return text if values == wanted else written(wanted)

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
        """Return a value that may be used: a proposal is asked about, an error without an answer."""
        if self.is_open(name):
            shown = visible(masked_text(str(self.proposed(name))), lines=False)
            folder = shlex.quote(self._location.removesuffix(f"/{FILE}"))
            question = f"{self._location} sends work of this workspace to {shown} ({name}). Use it?"
            if not consoles.current().confirm(question):
                raise SettingNotConfirmed(
                    f"{self._location} proposes {name} = {shown}, which was not confirmed here",
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
                else "export it again",
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


def _of_the_user(name: str, location: str) -> ConfigError:
    return ConfigError(
        f"{name} cannot be set by a workspace, as {location} does",
        remedy=f"take it out there; `trueline config set --user {name} VALUE` sets it for you",
        name=name,
        path=location,
    )
