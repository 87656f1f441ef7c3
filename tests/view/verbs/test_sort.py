"""What a sort refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from trueline.errors import InputError, SchemaError


def test_a_sort_needs_columns_that_have_an_order():
    view = tl.View.from_arrow(pa.table({"n": [1], "v": [[1.0]]}))
    with pytest.raises(InputError, match="without columns"):
        view.sort()
    with pytest.raises(SchemaError, match="no order"):
        view.sort("v")
    for wrong in ([True, False], [1], "yes"):
        with pytest.raises(InputError, match="descending"):
            view.sort("n", descending=wrong)
