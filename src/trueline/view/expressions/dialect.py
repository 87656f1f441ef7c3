"""How the text of an expression is read: Spark's syntax, with functions and types left to us.

The parser knows what hundreds of functions mean to other databases, and
rewrites them accordingly. Here a call stays a call, and the type of a cast
stays text, so that the language is what `functions` lists and nothing else.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import TokenType
from sqlglot import expressions as sql
from sqlglot.dialects.spark import Spark

# Where its class lives differs from version to version.
_SparkParser: Any = Spark.Parser


class Language(Spark):
    """The dialect of expressions."""

    class Parser(_SparkParser):  # type: ignore[misc]
        """Reads calls as calls."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            "CAST": lambda self: self.as_type(),
            "TRY_CAST": lambda self: self.as_type(),
            "EXTRACT": _SparkParser.FUNCTION_PARSERS["EXTRACT"],
        }
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}  # else `array(1, 2)[0]` is read as `array[0]`

        def as_type(self) -> sql.Expression:
            """Read `x as <type>`; the type is everything up to the bracket that closes the cast."""
            of = self._parse_assignment()
            if not self._match(TokenType.ALIAS):
                self.raise_error("Expected AS after what is cast")
            first, last, depth = self._curr, None, 0
            while self._curr is not None:
                depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
                if depth < 0:
                    break
                last = self._curr
                self._advance()
            if first is None or last is None:
                self.raise_error("Expected a type")
            return sql.Anonymous(
                this="cast", expressions=[of, sql.Literal.string(self._find_sql(first, last))]
            )
