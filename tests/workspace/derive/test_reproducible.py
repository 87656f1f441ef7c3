"""A definition whose result is not a function of its inputs is refused, with function, place and reason."""

from __future__ import annotations

import pytest

from trueline.errors import IrreproducibleQuery
from trueline.workspace.derive.reproducible import REFUSED, check_reproducible


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_each_is_refused_where_it_is_called(name):
    text = f"select x,\n  {name.upper()} (x) from t"
    with pytest.raises(IrreproducibleQuery) as caught:
        check_reproducible(text)
    assert caught.value.fields["line"] == 2
    assert caught.value.fields["column"] == 3
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["current_date", "current_timestamp", "localtimestamp"])
def test_some_need_no_brackets(name):
    with pytest.raises(IrreproducibleQuery, match=name):
        check_reproducible(f"select {name} from t")


def test_rows_taken_by_chance_are_refused():
    with pytest.raises(IrreproducibleQuery, match="by chance"):
        check_reproducible("select * from t tablesample (10 percent)")


@pytest.mark.parametrize(
    "text",
    [
        "select rand from t",
        "select 'now()' from t -- rand()",
        "select /* uuid() */ x from t",
        "select first_value(x) over (order by y) from t",
    ],
)
def test_names_texts_and_comments_are_not_calls(text):
    check_reproducible(text)
