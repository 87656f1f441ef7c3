"""Credentials in addresses and options: found, and masked where an address is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

MASK: Final = "***"

# An address in other text. A quote ends it, for messages put addresses between quotes.
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`]+")
_SPLIT: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^/?#]*)(.*)", re.DOTALL)
# A parameter behind `?`, `&`, `#`, or behind `;` as addresses of Spark Connect have it.
_PARAMETER: Final = re.compile(r"([?&;#])([^?&;#=/]+)=([^&;#]*)")
# Names are compared in lower case, without what divides words.
_PART: Final = re.compile(
    r"token|secret|passw|signature|credential|apikey|accesskey|accountkey|authkey|privatekey|sharedkey|sessionkey"
    r"|authorization|cookie|bearer"
)
_WHOLE: Final = frozenset({"sig", "sas", "key", "auth", "pass", "pwd", "pw", "jwt"})
# Names that end so say whose secret it is, or where it is kept.
_OPEN_ENDS: Final = ("id", "name", "file", "path", "url", "endpoint", "provider")
# Schemes in which a name before the host is a name, and not a key.
_NAMED: Final = ("abfs://", "abfss://", "wasb://", "wasbs://", "gs://", "s3://", "s3a://")
_DEEPEST: Final = 3


def is_secret_name(name: str) -> bool:
    """Say whether a value is secret by the name it is under.

    >>> [is_secret_name(name) for name in ("token", "X-Amz-Signature", "access_key_id", "region")]
    [True, True, False, False]
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    if plain.endswith(_OPEN_ENDS) or plain.startswith("skip"):
        return False
    return plain in _WHOLE or _PART.search(plain) is not None


def masked(address: str) -> str:
    """Return an address that may be shown: passwords and secret parameters are masked.

    >>> masked("https://ann:hunter2@example.org/x?page=1&token=abc")
    'https://ann:***@example.org/x?page=1&token=***'
    >>> masked("sc://host:15002/;token=abc;user_id=ann")
    'sc://host:15002/;token=***;user_id=ann'
    """
    return _masked(address, 0)


def has_secrets(address: str) -> bool:
    """Say whether an address has a password, or a parameter that is secret by its name.

    >>> has_secrets("https://example.org/x?sig=abc"), has_secrets("https://example.org/x?page=1")
    (True, False)
    """
    return masked(address) != address


def masked_text(text: str) -> str:
    """Return text in which every address is masked.

    >>> masked_text("cannot read 'https://ann:hunter2@example.org/x': it is gone")
    "cannot read 'https://ann:***@example.org/x': it is gone"
    """
    if "://" not in text:
        return text
    return _ADDRESS.sub(lambda found: masked(found[0]), text)


def masked_values(value: Any) -> Any:
    """Return plain values (text, lists, dictionaries) with every address in them masked."""
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, Mapping):
        return {key: masked_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked_values(each) for each in value]
    return value


def _masked(address: str, depth: int) -> str:
    parts = _SPLIT.fullmatch(address)
    if parts is None:
        return address
    scheme, host, rest = parts[1], parts[2], parts[3]
    if not _is_host(address) and "@" in rest.partition("?")[0]:
        # A password with a `/` in it: nothing before the last `@` is known to be harmless.
        path, mark, query = rest.partition("?")
        host, rest = f"{MASK}@{path.rpartition('@')[2]}", mark + query
    elif "@" in host:
        host = f"{_user(scheme, host.rpartition('@')[0])}@{host.rpartition('@')[2]}"
    return scheme + host + _PARAMETER.sub(lambda found: _parameter(found, depth), rest)


def _is_host(address: str) -> bool:
    """Say whether what is before the path can be a host and its port."""
    try:
        _ = urlsplit(address).port
    except ValueError:
        return False
    return True


def _user(scheme: str, user: str) -> str:
    name, colon, password = user.partition(":")
    if colon:
        return f"{name}:{MASK}" if password else user
    # Where a name is alone it is the key itself in most addresses of the web.
    return user if scheme.lower() in _NAMED or not name else MASK


def _parameter(found: re.Match[str], depth: int) -> str:
    mark, name, value = found[1], found[2], found[3]
    if not value:
        return found[0]
    if is_secret_name(unquote(name)):
        return f"{mark}{name}={MASK}"
    inner = unquote(value)
    if depth < _DEEPEST and "://" in inner and _masked(inner, depth + 1) != inner:
        return f"{mark}{name}={MASK}"
    return found[0]
