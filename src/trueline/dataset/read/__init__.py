"""Reading datasets: current rows, events, net changes and single rows, at any commit."""

from __future__ import annotations

from trueline.dataset.at import At, resolve
from trueline.dataset.read.views import changes_of, current_columns, diff_of, row_of, schema_of, view_of

__all__ = ["At", "changes_of", "current_columns", "diff_of", "resolve", "row_of", "schema_of", "view_of"]
