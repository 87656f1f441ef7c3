"""Formats of dates and times: from `%d.%m.%Y` to a pattern that is the same on every machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from trueline.errors import InputError

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = "january|february|march|april|may|june|july|august|september|october|november|december"
_TWO = "[0-9]{1,2}"
_ZONE = "Z|[+-][0-9]{2}(?::?[0-9]{2})?"

_PARTS = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "m": f"(?P<m>{_TWO})",
    "d": f"(?P<d>{_TWO})",
    "H": f"(?P<H>{_TWO})",
    "I": f"(?P<I>{_TWO})",
    "M": f"(?P<M>{_TWO})",
    "S": f"(?P<S>{_TWO})",
    "f": "(?P<f>[0-9]{1,9})",
    "b": f"(?P<b>(?i:{'|'.join(MONTHS)}))",
    "B": f"(?P<b>(?i:{_NAMES}))",
    "p": "(?P<p>(?i:AM|PM))",
    "z": f"(?P<z>{_ZONE})",
    "%": "%",
}
_WHOLE = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "R": "%H:%M"}


@dataclass(frozen=True, slots=True)
class Pattern:
    """A format as a regular expression (RE2) with one named group per part."""

    regex: str
    groups: frozenset[str]


_CLOCK = r"(?P<H>[0-9]{2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:\.(?P<f>[0-9]{1,9}))?)?"
_DAY = "(?P<Y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"
ISO_DATE = Pattern(f"^{_DAY}$", frozenset("Ymd"))
ISO_TIME = Pattern(f"^{_CLOCK}$", frozenset("HMSf"))
ISO_TIMESTAMP = Pattern(
    rf"^{_DAY}(?:[ T](?P<H>[0-9]{{2}})(?::(?P<M>[0-9]{{2}})(?::(?P<S>[0-9]{{2}})"
    rf"(?:\.(?P<f>[0-9]{{1,9}}))?)?)?(?P<z>{_ZONE})?)?$",
    frozenset("YmdHMSfz"),
)
# Years and months have no fixed length, so a duration cannot have them.
ISO_DURATION = Pattern(
    r"^(?P<sign>[+-]?)P(?:(?P<d>[0-9]{1,7})D)?"
    r"(?:T(?:(?P<h>[0-9]{1,9})H)?(?:(?P<m>[0-9]{1,10})M)?(?:(?P<s>[0-9]{1,19})(?:\.(?P<f>[0-9]{1,9}))?S)?)?$",
    frozenset(("sign", *"dhmsf")),
)


@lru_cache(maxsize=64)
def compiled(form: str) -> Pattern:
    """Compile a format, or raise naming the part that is unknown.

    Known are ``%Y %y %m %d %b %B %H %I %p %M %S %f %z %F %T %R %%``; months
    are English, independent of the locale.

    >>> sorted(compiled("%d.%m.%Y").groups)
    ['Y', 'd', 'm']
    """
    out, groups, at = [], set(), 0
    for short, long in _WHOLE.items():
        form = form.replace(f"%{short}", long)
    while at < len(form):
        if form[at] != "%":
            out.append(re.escape(form[at]))
            at += 1
            continue
        letter = form[at + 1 : at + 2]
        part = _PARTS.get(letter)
        group = "b" if letter == "B" else letter
        if part is None or group in groups:
            raise InputError(
                f"the format {form!r} has {'two' if part else 'an unknown part'} %{letter}",
                remedy="use %Y %y %m %d %b %B %H %I %p %M %S %f %z, each at most once",
            )
        out.append(part)
        groups |= {group} - {"%"}
        at += 2
    if not (groups & {"Y", "y"} and groups & {"m", "b"} and "d" in groups):
        raise InputError(f"the format {form!r} does not give a full date", remedy="give year, month and day")
    if ("I" in groups) != ("p" in groups):
        raise InputError(f"the format {form!r} has only one of %I and %p", remedy="use both, or %H")
    return Pattern(f"^{''.join(out)}$", frozenset(groups))
