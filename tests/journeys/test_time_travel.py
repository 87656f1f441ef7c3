"""Time travel: rows as they were on a day, at a tag or a commit, what changed since, and the way back."""

TRANSCRIPT = r"""
>>> from datetime import date, datetime, UTC
>>> import trueline as tl
>>> from trueline.chain.instant import Instant
>>> ws = tl.open("shop", create=True)
>>> def today(text):
...     ws.clock = lambda: Instant.parse(f"{text}T18:00:00Z")
>>> today("2100-11-10")
>>> stock = ws.create("stock", merge=tl.merge.upsert("item"))
>>> today("2100-11-11")
>>> stock.append([{"item": "pen", "n": 10}, {"item": "ink", "n": 3}])
<Commit … of stock: +2 rows, offsets 0 to 1>
>>> today("2100-11-12")
>>> stock.append([{"item": "pen", "n": 8}, {"item": "cup", "n": 5}])
<Commit … of stock: +1 ~1 rows, offsets 2 to 4>
>>> today("2100-11-13")
>>> stock.append([{"item": "pen", "n": 0}, {"item": "ink", "op": 1}])
<Commit … of stock: ~1 -1 rows, offsets 5 to 7>
>>> stock.view().show()
2 rows, 2 columns
item  n
cup   5
pen   0
>>> stock.view(at="2100-11-12").show()
3 rows, 2 columns
item  n
cup   5
ink   3
pen   8
>>> stock.view(at=date(2100, 11, 11)).show()
2 rows, 2 columns
item   n
ink    3
pen   10
>>> stock.view(at=datetime(2100, 11, 12, 17, tzinfo=UTC)).count()
2
>>> stock.view(at="2100-11-10").count()
0
>>> stock.get("pen", at="2100-11-12")
{'item': 'pen', 'n': 8}
>>> [commit.changes for commit in stock.log()]
['~1 -1 rows', '+1 ~1 rows', '+2 rows', '+0 rows']
>>> audit = ws.tag("audit", stock.commit("2100-11-12"))
>>> ws["stock@audit"]
BadName: 'stock@audit' cannot name a dataset
  → a dataset is read as it was by ws['stock'].view(at='audit')
>>> ws["stock"].view(at="audit").count()
3
>>> stock.diff("audit").show()
3 rows, 3 columns
op                item  n
delete            ink   3
update_preimage   pen   8
update_postimage  pen   0
>>> stock.changes(after="audit").select("op", "item", "n").show()
3 rows, 3 columns
op                item  n
delete            ink   3
update_preimage   pen   8
update_postimage  pen   0
>>> before = stock.view(at="audit")
>>> today("2100-11-14")
>>> stock.append([{"item": "pen", "n": 99}])
<Commit … of stock: ~1 row, offsets 8 to 9>
>>> before.to_arrow().to_pylist()
[{'item': 'cup', 'n': 5}, {'item': 'ink', 'n': 3}, {'item': 'pen', 'n': 8}]
$ cd shop
$ trueline show stock@2100-11-11
item   n
ink    3
pen   10
stock@… (offset 1)
$ trueline show stock@audit
item  n
cup   5
ink   3
pen   8
stock@… (offset 4)
$ trueline show stock@2100-11-10
no rows; the columns are not known yet
stock@… (no records)
$ trueline show stock@2100-13-01
error: '2100-13-01' is not a date
  → give a commit, a hash, a tag, a date (2026-11-13), a time with its zone, offset:N or head
[exit 2]
$ trueline show stock@audt
error: 'audt' does not name a commit, and is not a tag
  → did you mean 'audit'?
[exit 2]
$ trueline tag
tag    dataset  commit
audit  stock    …
$ trueline diff stock@2100-11-11 stock@audit
op                item   n
insert            cup    5
update_preimage   pen   10
update_postimage  pen    8
stock@… (offset 4, after …)
$ trueline log stock --oneline
…  2100-11-14 18:00:00  stock  ~1 row, offsets 8 to 9
…  2100-11-13 18:00:00  stock  ~1 -1 rows, offsets 5 to 7
…  2100-11-12 18:00:00  stock  +1 ~1 rows, offsets 2 to 4
…  2100-11-11 18:00:00  stock  +2 rows, offsets 0 to 1
…  …  stock  Seed, AddPushSource, SetAttachments
$ trueline export stock@audit ../audit.csv
../audit.csv: 3 rows, … bytes
$ cat ../audit.csv
"item","n"
"cup",5
"ink",3
"pen",8
$ trueline tag 2100-11-12 stock@offset:3
error: '2100-11-12' cannot be a tag: after an @ it reads as a day
  → put a word in front of it, as in release-2100-11-12
[exit 2]
$ trueline revert stock --to audit
stock  reverted to …: +1 ~1 rows, offsets 10 to 12
$ trueline show stock
item  n
cup   5
ink   3
pen   8
stock@… (offset 12)
$ trueline tag audit --delete
removed the tag audit
$ trueline show stock@audit
error: 'audit' does not name a commit, and is not a tag
  → give a commit, a hash, a tag, a date (2026-11-13), a time with its zone, offset:N or head
[exit 2]
$ trueline verify stock
stock: ok, 9 blocks, 18 files, … bytes
"""


def test_rows_as_they_were(desk):
    desk.play(TRANSCRIPT)
