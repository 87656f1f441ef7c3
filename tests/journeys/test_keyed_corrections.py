# ruff: noqa: E501
"""Keyed corrections: rows that change, move and go, columns left out, a full dump each night, and the way back."""

TRANSCRIPT = r"""
$ trueline init bank
workspace …/bank
$ cd bank
$ trueline create customers --merge upsert --key id
customers  root  …  did:odf:…
$ trueline ingest customers ../customers.csv
customers  +3 rows, offsets 0 to 2, 1 file
$ trueline ingest customers ../moved.csv
customers  ~2 rows, offsets 3 to 6, 1 file
$ trueline ingest customers ../raised.csv
customers  +1 ~1 rows, offsets 7 to 9, 1 file, ignored: superseded 1
$ trueline ingest customers ../nokey.csv
error: ../nokey.csv: 1 rows have a null in the key (id): rows [0]
  → fix these rows, or leave them out: view.filter('`id` is not null'), or for files append(path, steps=[validate('`id` is not null', drop=True)])
[exit 2]
$ trueline show customers
id  name  city  limit
 1  Ann   Bern    800
 2  Ben   Chur    300
 3  Eve   Thun    900
 4  Dan   Brig    100
customers@… (offset 9)
$ trueline ingest customers ../gone.csv
customers  -1 row, offset 10, 1 file
$ trueline show customers
id  name  city  limit
 1  Ann   Bern    800
 2  Ben   Chur    300
 4  Dan   Brig    100
customers@… (offset 10)
$ trueline list
name       kind  rows  events  commits  updated              head
customers  root     3      11        5  …  …
$ trueline log customers --oneline
…  …  customers  -1 row, offset 10
…  …  customers  +1 ~1 rows, offsets 7 to 9
…  …  customers  ~2 rows, offsets 3 to 6
…  …  customers  +3 rows, offsets 0 to 2
…  …  customers  Seed, AddPushSource, SetAttachments
$ trueline show customers --changes
offset  op                system_time                       id  name  city   limit
     0  insert            …   1  Ann   Bern     500
     1  insert            …   2  Ben   Zug      300
     2  insert            …   3  Eve   Basel    900
     3  update_preimage   …   2  Ben   Zug      300
     4  update_postimage  …   2  Ben   Chur     300
     5  update_preimage   …   3  Eve   Basel    900
     6  update_postimage  …   3  Eve   Thun     900
     7  update_preimage   …   1  Ann   Bern     500
     8  update_postimage  …   1  Ann   Bern     800
     9  insert            …   4  Dan   Brig     100
    10  delete            …   3  Eve   Thun     900
customers@… (offset 10)
$ trueline diff customers offset:2
error: 'customers' does not say since which commit
  → write customers@… for what the newest commit changed; `trueline log customers` shows all commits
[exit 2]
$ trueline diff customers@offset:2
op                id  name  city   limit
update_preimage    1  Ann   Bern     500
update_postimage   1  Ann   Bern     800
update_preimage    2  Ben   Zug      300
update_postimage   2  Ben   Chur     300
delete             3  Eve   Basel    900
insert             4  Dan   Brig     100
customers@… (offset 10, after …)
>>> import trueline as tl
>>> ws = tl.open("bank")
>>> customers = ws["customers"]
>>> customers.append([{"id": 1, "limit": None}])
<Commit … of customers: ~1 row, offsets 11 to 12>
>>> customers.get(1)
{'id': 1, 'name': 'Ann', 'city': 'Bern', 'limit': None}
>>> customers.append([{"id": 3, "name": "Eve"}])
<Commit … of customers: +1 row, offset 13>
>>> customers.get(3)
{'id': 3, 'name': 'Eve', 'city': None, 'limit': None}
>>> customers.info.rows, customers.info.events
(4, 14)
>>> first = next(commit for commit in customers.log() if commit.changes == "+3 rows")
>>> customers.revert(to=first)
<Commit … of customers: reverted to …: ~3 -1 rows, offsets 14 to 20>
>>> customers.view().show()
3 rows, 4 columns
id  name  city   limit
 1  Ann   Bern     500
 2  Ben   Zug      300
 3  Eve   Basel    900
>>> customers.diff(first).count()
0
$ trueline create prices --merge snapshot --key item
prices  root  …  did:odf:…
$ trueline ingest prices ../prices-1.csv
prices  +2 rows, offsets 0 to 1, 1 file
$ trueline ingest prices ../prices-2.csv
prices  +1 ~1 -1 rows, offsets 2 to 5, 1 file
$ trueline ingest prices ../prices-3.csv
error: ../prices-3.csv is empty, and as a snapshot it would retract every row, 2 of them
  → if there really are no rows left, say so with allow_empty=True (append, pull and trueline.source have it; in the shell it is --allow-empty)
[exit 2]
$ trueline ingest prices ../prices-4.csv
error: ../prices-4.csv lacks column 'price', and every value of it would count as gone
  → give column 'price' (null where there is no value); a snapshot that never has it is compared without: merge.snapshot(key, compare=[...])
[exit 2]
$ trueline show prices
item  price
cup     4.0
pen    2.75
prices@… (offset 5)
$ trueline revert prices --to offset:1
prices  reverted to …: +1 ~1 -1 rows, offsets 6 to 9
$ trueline show prices
item  price
ink     7.0
pen     2.5
prices@… (offset 9)
$ trueline log prices --oneline
…  …  prices  reverted to …: +1 ~1 -1 rows, offsets 6 to 9
…  …  prices  +1 ~1 -1 rows, offsets 2 to 5
…  …  prices  +2 rows, offsets 0 to 1
…  …  prices  Seed, AddPushSource, SetAttachments
$ trueline verify
customers: ok, 11 blocks, 25 files, … bytes
prices: ok, 7 blocks, 10 files, … bytes
"""


def test_customers_are_corrected_and_restored(desk):
    desk.write("customers.csv", "id,name,city,limit\n1,Ann,Bern,500\n2,Ben,Zug,300\n3,Eve,Basel,900\n")
    desk.write("moved.csv", "id,city\n2,Chur\n3,Thun\n")
    desk.write("raised.csv", "id,name,city,limit\n1,Ann,Bern,800\n4,Dan,Visp,100\n4,Dan,Brig,100\n")
    desk.write("gone.csv", "id,op\n3,1\n")
    desk.write("nokey.csv", "id,name\n,Nobody\n5,Kim\n")
    desk.write("prices-1.csv", "item,price\npen,2.5\nink,7.0\n")
    desk.write("prices-2.csv", "item,price\npen,2.75\ncup,4.0\n")
    desk.write("prices-3.csv", "item,price\n")
    desk.write("prices-4.csv", "item\npen\n")
    desk.play(TRANSCRIPT)
