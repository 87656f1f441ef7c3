"""The root of the errors, and its four kinds: your input, retry, outcome unknown, corruption."""

from __future__ import annotations

from typing import Any, Final

from trueline.credentials import masked_text

# Control characters, and those that turn the direction of text or hide in it: shown, never obeyed.
HIDDEN: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    0x200B,
    # Not 0x200C and 0x200D, which join the parts of one picture, and of letters in some scripts.
    *range(0x200E, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
    *range(0xD800, 0xE000),
)
_SHOWN: Final = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in HIDDEN}
# Fields that hold a name from outside; where the message repeats one it stays on its line.
_NAMES: Final = ("path", "name", "column", "url", "location", "source", "file", "dataset")
_SHOWN_IN_LINES: Final = {code: text for code, text in _SHOWN.items() if code not in (9, 10)}


def visible(text: str, *, lines: bool = True) -> str:
    r"""Return text that is harmless to show; without `lines` it stays on one line.

    >>> visible("a\x1b[31mb\u202ec"), visible("a\nb", lines=False)
    ('a\\x1b[31mb\\u202ec', 'a\\x0ab')
    """
    return text.translate(_SHOWN_IN_LINES if lines else _SHOWN)


class TruelineError(Exception):
    """Root of every error raised here.

    `code` is stable and may be matched on, `fields` holds the values the
    message was made from (also readable as attributes), and the last line of
    the message says what to do: `in_shell` is what the command line says
    instead, where a remedy is written in Python. Credentials of addresses are
    masked in all of them, control characters are shown as escapes in the message.

    >>> error = DatasetNotFound("no dataset 'trade'", remedy="did you mean 'trades'?", name="trade")
    >>> error.code, error.name
    ('DatasetNotFound', 'trade')
    >>> print(error)
    no dataset 'trade'
      → did you mean 'trades'?
    """

    def __init__(
        self, problem: str, *, remedy: str = "", code: str = "", in_shell: str = "", **fields: object
    ) -> None:
        for name in _NAMES:
            given = fields.get(name)
            if isinstance(given, str) and ("\n" in given or "\r" in given):
                problem = problem.replace(given, visible(given, lines=False))
        self.problem = masked_text(problem)
        self.remedy = masked_text(remedy)
        self.in_shell = masked_text(in_shell)
        self.code = code or type(self).__name__
        self.fields = {
            name: masked_text(value) if isinstance(value, str) else value for name, value in fields.items()
        }
        super().__init__(self.problem)

    def __str__(self) -> str:
        return visible(f"{self.problem}\n  → {self.remedy}" if self.remedy else self.problem)

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (rebuild, (type(self), self.problem, self._texts(), self.fields))

    def _texts(self) -> dict[str, str]:
        return {"remedy": self.remedy, "code": self.code, "in_shell": self.in_shell}


def rebuild(
    kind: type[TruelineError], problem: str, texts: dict[str, str], fields: dict[str, Any]
) -> TruelineError:
    """Restore an error that crossed a process boundary."""
    return kind(problem, **texts, **fields)


class DataWarning(UserWarning):
    """Rows were appended, and something about them is to be looked at."""


class BadCellsWarning(DataWarning):
    """Cells of appended files could not be read and are null; once per commit."""


class InputError(TruelineError, ValueError):
    """What was asked for cannot be done as asked; nothing was changed."""


class RetryError(TruelineError):
    """Tried and failed; nothing was changed and trying again is safe."""


class OutcomeUnknown(TruelineError):
    """It may or may not have happened; look before trying again."""


class CorruptionError(TruelineError):
    """Stored bytes are not what their names or neighbours say they are."""
