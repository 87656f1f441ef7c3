# ruff: noqa: E501
"""A notebook: every cell ends with something that is shown as HTML, and a person can read it."""

import doctest
import re

from tests.journeys import notebook
from tests.journeys.notebook import Notebook
from tests.journeys.transcript import prints

CELLS = r"""
# %%
import pandas as pd
import trueline as tl

ws = tl.open("lab", create=True)
ws
---
Workspace …/lab
dataset  rows  updated
# %%
measured = pd.DataFrame({"id": range(1, 31), "year": 2026, "mass": [20.5, None] * 15, "n": [7, None] * 15})
birds = ws.create("birds", merge=tl.merge.upsert("id"))
birds.append(measured)
---
Commit …
dataset  birds
time  … UTC
did  +30 rows, offsets 0 to 29
# %%
ws
---
Workspace …/lab
dataset  rows  updated
birds  30  … UTC
# %%
birds
---
Dataset birds
rows  30
kind  root
events  30
commits  2
head  …
updated  … UTC
merge  upsert('id')
# %%
birds.view()
---
first 20 of 30 rows, 4 columns
id int64  year int64  mass float64  n float64
1  2026  20.5  7.0
2  2026  –  –
3  2026  20.5  7.0
4  2026  –  –
5  2026  20.5  7.0
6  2026  –  –
7  2026  20.5  7.0
8  2026  –  –
9  2026  20.5  7.0
10  2026  –  –
11  2026  20.5  7.0
12  2026  –  –
13  2026  20.5  7.0
14  2026  –  –
15  2026  20.5  7.0
16  2026  –  –
17  2026  20.5  7.0
18  2026  –  –
19  2026  20.5  7.0
20  2026  –  –
# %%
birds.schema
---
Schema, 4 columns
column  type  nullable  annotations
id  int64  yes
year  int64  yes
mass  float64  yes
n  float64  yes
# %%
birds.view().filter("mass is null").select("id", "year")
---
15 rows, 2 columns
id int64  year int64
2  2026
4  2026
6  2026
8  2026
10  2026
12  2026
14  2026
16  2026
18  2026
20  2026
22  2026
24  2026
26  2026
28  2026
30  2026
# %%
birds.append([{"id": 2, "mass": 19.25}])
---
Commit …
dataset  birds
time  … UTC
did  ~1 row, offsets 30 to 31
# %%
birds.get(2)
---
{'id': 2, 'year': 2026, 'mass': 19.25, 'n': None}
# %%
birds.info
---
Dataset birds
name  birds
kind  root
id  did:odf:…
head  …
rows  30
events  32
commits  3
blocks  6
created  … UTC
updated  … UTC
merge  upsert('id')
sources  default
last_slice_bytes  …
location  …/lab/datasets/birds
# %%
from pathlib import Path
Path("more.csv").write_text("id,year,mass,n\n31,2026,heavy,1\n32,2027,<b>,\n33,2027,18,2\n")
birds.append("more.csv", max_bad=5)
---
BadCellsWarning: birds: 2 bad cells (mass 2), for example 'heavy' in mass (more.csv, line 2); '<b>' in mass (more.csv, line 3), null instead
  → look at commit.bad_cells(); max_bad=0 refuses such files
Commit …
dataset  birds
time  … UTC
did  +3 rows, offsets 32 to 34
files  more.csv
bad cells  2 bad cells (mass 2), for example 'heavy' in mass (more.csv, line 2); '<b>' in mass (more.csv, line 3)
# %%
birds.view().group_by("year").agg(birds="count(*)", mean="round(avg(mass), 2)").sort("year")
---
2 rows, 3 columns
year int64  birds int64  mean float64
2026  31  20.42
2027  2  18.0
# %%
again = birds.view().to_pandas()
again.loc[again.id == 33, "n"] += 1
birds.append(again)
---
Commit …
dataset  birds
time  … UTC
did  ~1 row, offsets 35 to 36
# %%
next(iter(birds.log()))
---
Commit …
dataset  birds
time  … UTC
did  ~1 row, offsets 35 to 36
# %%
ws.verify()
---
Verification: ok
blocks  8
files  13
bytes  …
# %%
Path("inbox").mkdir()
Path("inbox/a.csv").write_text("x\n1\n2\n")
ws.create("polled", source="inbox/*.csv")
ws.pull()
---
Pull
dataset  did
polled  +2 rows, offsets 0 to 1, 1 file
# %%
birds.diff(list(birds.log())[1])
---
2 rows, 5 columns
op text  id int64  year int64  mass float64  n float64
update_preimage  33  2027  18.0  2.0
update_postimage  33  2027  18.0  3.0
"""


def test_every_cell_shows_what_happened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Notebook()
    for cell in CELLS.split("# %%\n")[1:]:
        source, _, expected = cell.partition("---\n")
        shown = page.run(source)
        assert prints(expected, shown.text), f"{source}\nshows\n{shown.text}\nand not\n{expected}"
        assert not re.search("f1620[0-9a-f]{20}", shown.html), f"{source} shows a long hash"
        assert "<b>" not in shown.html, f"{source} shows the text of a file as HTML"


def test_the_examples_of_reading_html_hold():
    assert doctest.testmod(notebook).failed == 0
