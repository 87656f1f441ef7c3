"""What people see of a view: its first rows, what is known of its columns, the steps it is made of."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from trueline import console
from trueline import types as t
from trueline.errors import InputError
from trueline.view.annotations import about
from trueline.view.schema import Field, Schema


@pytest.fixture
def view():
    return tl.View.range(9).filter("n > :least", least=2).with_columns(m="n * 2").select("m")


def test_a_notebook_shows_types_annotations_and_the_first_rows():
    schema = Schema([Field("x", t.float32, about(is_normalised=True)), Field("s", t.text)]).to_arrow()
    rows = {"x": [float(n) for n in range(25)], "s": [f"row {n}" for n in range(25)]}
    html = tl.View.from_arrow(pa.table(rows, schema=schema))._repr_html_()
    assert "x\nfloat32 (is_normalised)" in html
    assert "s\ntext</th>" in html
    assert "row 19<" in html
    assert "row 20<" not in html
    assert "25 rows, 2 columns" in html


def test_a_preview_shows_the_first_rows_of_every_step_sources_first(view):
    preview = view.preview(2, steps=True)
    assert [table.rows for table in preview.tables] == [
        ((0,), (1,)),
        ((3,), (4,)),
        ((3, 6), (4, 8)),
        ((6,), (8,)),
    ]
    source, kept, computed, chosen = (table.title for table in preview.tables)
    assert source.startswith("numbers from 0 on")
    assert "n > " in kept
    assert "m = n * 2" in computed
    assert chosen == "columns m"
    assert str(preview).split("\n\n")[-1] == "columns m\nm\n6\n8"
    assert preview._repr_html_().count("<table>") == 4


def test_a_preview_without_steps_is_of_the_view_alone(view):
    (table,) = view.preview(1).tables
    assert table.rows == ((6,),)
    with console.use(console.CapturedConsole()) as seen:
        view.preview().show()
    assert seen.text.split() == ["columns", "m", "m", "6", "8", "10", "12", "14"]
    with pytest.raises(InputError, match="preview"):
        view.preview(-1)


def test_a_preview_of_very_many_rows_makes_few_of_them():
    endless = tl.View.range(10**15)
    assert [table.rows for table in endless.skip(5).preview(1, steps=True).tables] == [((0,),), ((5,),)]
