"""A notebook as Jupyter runs it: a cell ends with a value, and is shown as its HTML if it has any."""

from __future__ import annotations

import ast
import contextlib
import html
import io
import re
import warnings
from dataclasses import dataclass


@dataclass(frozen=True)
class Shown:
    """What is shown under a cell."""

    html: str
    text: str


class Notebook:
    """Runs cells one after another, with the names of those before."""

    def __init__(self) -> None:
        self.names: dict[str, object] = {"__name__": "__main__"}

    def run(self, cell: str) -> Shown:
        """Run a cell; returns what is printed and what its last line shows."""
        body = ast.parse(cell).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        out, value = io.StringIO(), None
        with contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda said, kind, *_: out.write(f"{kind.__name__}: {said}\n")
            exec(compile(ast.Module(body, []), "<cell>", "exec"), self.names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), self.names)
        if value is None:
            return Shown("", out.getvalue())
        as_html = value._repr_html_() if hasattr(value, "_repr_html_") else ""
        return Shown(as_html, out.getvalue() + (read(as_html) or repr(value)))


def read(page: str) -> str:
    """What a person reads of HTML: a line for each row of a table and each paragraph.

    >>> read("<p>2 rows</p><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>&lt;</td></tr></table>")
    '2 rows\\na  b\\n1  <'
    """
    page = re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL)
    page = re.sub(r"\s+", " ", page)
    page = re.sub(r"</t[hd]>\s*<t[hd][^>]*>", "  ", page)
    page = re.sub(r"</(tr|p|div|caption|h\d|li|table|details|summary|pre)>|<br\s*/?>", "\n", page)
    lines = html.unescape(re.sub(r"<[^>]*>", "", page)).splitlines()
    return "\n".join(line.strip() for line in lines if line.strip())
