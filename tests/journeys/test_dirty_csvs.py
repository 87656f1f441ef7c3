# ruff: noqa: E501
"""Dirty CSVs: semicolons, decimal commas, words for null, a date that does not exist, a misspelt header."""

TRANSCRIPT = r"""
$ trueline init shop
workspace …/shop
$ cd shop
$ trueline create sales
sales  root  …  did:odf:…
$ trueline ingest sales ../inbox/2026-11-13.csv
error: ../inbox/2026-11-13.csv is mostly unreadable: rows have too many cells (3 of 3): are separator, quote and header right, and does the schema name all columns?
  → fix the reader's options, such as separator and skip_lines (--delimiter, --skip-lines), or allow it with max_bad
[exit 2]
$ trueline ingest sales ../inbox/2026-11-13.csv --delimiter ';'
sales  +3 rows, offsets 0 to 2, 1 file
warning: a column is text only because of words for null: 'qty' (else int64) because of 'n/a'
  → a type is for ever: to have the other, ingest into a new dataset with --nulls n/a
warning: a column is text, and every cell is a number with a decimal comma: 'price' (else double) as in '2,50'
  → a type is for ever: to have the other, ingest into a new dataset with --decimal ,
warning: a column is text, and every cell is a date or a time: 'day' (else date32[day]) as in '13.11.2026'
  → a type is for ever: to have the other, ingest into a new dataset with --date-format %d.%m.%Y
$ trueline delete sales --yes
deleted sales; `trueline gc` frees its room
$ trueline create sales
sales  root  …  did:odf:…
$ trueline ingest sales ../inbox/2026-11-13.csv --delimiter ';' --decimal , --nulls n/a --date-format %d.%m.%Y
sales  +3 rows, offsets 0 to 2, 1 file
$ trueline schema sales
column  type     optional
id      Int64    yes
day     Date     yes
item    String   yes
price   Float64  yes
qty     Int64    yes
$ trueline show sales
id  day         item  price  qty
 1  2026-11-13  pen     2.5   10
 2  2026-11-13  ink     7.0    –
 3  2026-11-13  cup     4.0    4
sales@… (offset 2)
$ trueline show sales --bad
no bad cells
$ trueline ingest sales ../inbox/2026-11-1[345].csv --delimiter ';' --decimal , --nulls n/a --date-format %d.%m.%Y
error: ../inbox/2026-11-15.csv has a column that the dataset does not have
    + prise: is not a column of the dataset; did you mean price?
    - price: is missing
  → rename it, or new_columns="add" adds them (--new-columns add), "ignore" leaves them out
[exit 2]
$ trueline ingest sales ../inbox/2026-11-1[34].csv --delimiter ';' --decimal , --nulls n/a --date-format %d.%m.%Y
sales  +3 rows, offsets 3 to 5, 1 file, 2 bad cells (day 1, price 1), known already: ../inbox/2026-11-13.csv
$ trueline show sales --bad
file                     row  line  column  text
../inbox/2026-11-14.csv    1     3  day     31.02.2026
../inbox/2026-11-14.csv    2     4  price   free
$ trueline ingest sales ../inbox/2026-11-16.csv --delimiter ';' --decimal , --nulls n/a --date-format %d.%m.%Y
error: ../inbox/2026-11-16.csv has none of the dataset's columns: id,day,item,price,qty
  → the dataset has id, day, item, price, qty; is the separator right, and is there a header?
[exit 2]
$ sed -i s/prise/price/ ../inbox/2026-11-15.csv
$ trueline ingest sales ../inbox/2026-11-15.csv --delimiter ';' --decimal , --nulls n/a --date-format %d.%m.%Y
sales  +1 row, offset 6, 1 file
$ trueline log sales -n 2
commit … (head)
Dataset: sales
Date:    … UTC
    +1 row, offset 6, … bytes
    files: ../inbox/2026-11-15.csv
commit …
Dataset: sales
Date:    … UTC
    +3 rows, offsets 3 to 5, … bytes
    files: ../inbox/2026-11-14.csv
    bad cells: day 1, price 1 (`trueline show sales@… --bad`)
… older commits are not shown; -n 20 shows more, -n 0 all
>>> import trueline as tl
>>> ws = tl.open("shop")
>>> sales = ws["sales"]
>>> how = tl.csv(separator=";", decimal=",", nulls=["", "n/a"], date_format="%d.%m.%Y")
>>> from pathlib import Path
>>> _ = Path("inbox/2026-11-17.csv").write_text("id;day;item;price;qty\n9;17.11.2026;pen;2,60;three\n10;17.11.2026;cup;4;1\n")
>>> sales.append("inbox/2026-11-17.csv", how, max_bad=0)
InputError: 1 cell in 2 rows cannot be read (qty 1) in inbox/2026-11-17.csv, more than max_bad=0
  → look at the files and the reader's options, or raise max_bad
>>> commit = sales.append("inbox/2026-11-17.csv", how)
BadCellsWarning: sales: 1 bad cell (qty 1), for example 'three' in qty (inbox/2026-11-17.csv, line 2), null instead
  → look at commit.bad_cells(); max_bad=0 refuses such files
>>> commit
<Commit … of sales: +2 rows, offsets 7 to 8, 1 bad cell (qty 1), for example 'three' in qty (inbox/2026-11-17.csv, line 2)>
>>> commit.bad_cells().show()
1 row, 5 columns
file                  row  line  column  text
inbox/2026-11-17.csv    0     2  qty     three
>>> sales.view().filter("price > 2.5").select("id", "day", "price").show()
6 rows, 3 columns
id  day         price
 2  2026-11-13    7.0
 3  2026-11-13    4.0
 5  –             7.2
 7  2026-11-15    2.6
 9  2026-11-17    2.6
10  2026-11-17    4.0
>>> sales.view().group_by("item").agg(n="count(*)", worth="sum(price * qty)").sort("item").show()
3 rows, 3 columns
item  n  worth
cup   2   20.0
ink   3    7.2
pen   4   40.3
>>> ws.verify().ok
True
"""


def test_a_week_of_dirty_files(desk):
    desk.write(
        "inbox/2026-11-13.csv",
        "id;day;item;price;qty\n1;13.11.2026;pen;2,50;10\n2;13.11.2026;ink;7,00;n/a\n3;13.11.2026;cup;4,00;4\n",
    )
    desk.write(
        "inbox/2026-11-14.csv",
        "id;day;item;price;qty\n4;14.11.2026;pen;2,50;3\n5;31.02.2026;ink;7,20;1\n6;14.11.2026;ink;free;1\n",
    )
    desk.write("inbox/2026-11-15.csv", "id;day;item;prise;qty\n7;15.11.2026;pen;2,60;3\n")
    desk.write("inbox/2026-11-16.csv", "id,day,item,price,qty\n8,16.11.2026,pen,2,60,3\n")
    desk.play(TRANSCRIPT)
