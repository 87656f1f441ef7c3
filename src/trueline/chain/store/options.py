"""Options of an object store: from text to what its client takes, and how long it tries again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from trueline.errors import InputError

# The client's own 180 seconds are long for a mistake in an address; what fails can be done again.
RETRY_SECONDS: Final = 15
_RETRY: Final = "retry_config"
_TIMEOUT: Final = "retry_timeout"
_TIME: Final = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h)?\s*")
# Options whose values may be shown; of all others they may be keys.
_OPEN: Final = re.compile(r"(\w+_)?(endpoint|region|bucket(_name)?|url|account_name|container_name)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, None: 1.0}


def nested(given: Iterable[tuple[str, str]], prefix: str = "") -> dict[str, Any]:
    """Return options that were given as text under flat names, where a dot names a group.

    Errors show names with the prefix they were given under.

    >>> nested(
    ...     [("region", "here"), ("client_options.allow_http", "true"), ("retry_config.max_retries", "3")]
    ... )
    {'region': 'here', 'client_options': {'allow_http': 'true'}, 'retry_config': {'max_retries': 3}}
    """
    found: dict[str, Any] = {}
    for name, value in given:
        group, _, leaf = name.rpartition(".")
        within = found.setdefault(group, {}) if group else found
        if not leaf or not isinstance(within, dict):
            raise InputError(
                f"there is no option {prefix + name!r}",
                remedy="give options of the provider, such as endpoint or client_options.allow_http",
                code="BadOption",
            )
        # The only numbers that a provider does not take as text are those of retries.
        within[leaf] = int(value) if (group, leaf) == (_RETRY, "max_retries") and value.isdecimal() else value
    return found


def with_retries(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with a bound on how long a request is tried again: what was asked for, or 15 seconds.

    >>> with_retries({"retry_config": {"retry_timeout": "2m"}})["retry_config"]["retry_timeout"]
    datetime.timedelta(seconds=120)
    """
    given = options.get(_RETRY) or {}
    if not isinstance(given, Mapping):
        raise InputError(
            f"{_RETRY} is not a group of options", remedy=f"give {_RETRY}.{_TIMEOUT}", code="BadOption"
        )
    return {**options, _RETRY: {**given, _TIMEOUT: _time(given.get(_TIMEOUT, RETRY_SECONDS))}}


def _time(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    found = None if isinstance(value, bool) else _TIME.fullmatch(str(value))
    if found is None:
        raise InputError(
            f"{_RETRY}.{_TIMEOUT} is not a duration", remedy="write it like 30s or 2m", code="BadOption"
        )
    return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])


def without_secrets(text: str, options: Mapping[str, Any]) -> str:
    """Return text that contains no secret of the options, nor what follows the `?` of an address.

    >>> without_secrets("no https://host/x?sig=abc for hunter2", {"password": "hunter2", "region": "x"})
    'no https://host/x?… for …'
    """
    shown = re.sub(r"(https?://[^\s?]+)\?\S+", r"\1?…", text)
    for name, value in options.items():
        if isinstance(value, Mapping):
            shown = without_secrets(shown, value)
        elif isinstance(value, str) and value and not _OPEN.fullmatch(name.lower()):
            shown = shown.replace(value, "…")
    return shown
