# ruff: noqa: E501
"""Dirty JSON: arrays, pretty-printed objects, a login page, a file cut short, other names, nested values, archives."""

TRANSCRIPT = r"""
>>> import trueline as tl
>>> ws = tl.open("weather", create=True)
>>> readings = ws.create("readings")
>>> readings.append("inbox/array.json")
<Commit … of readings: +2 rows, offsets 0 to 1>
>>> readings.append("inbox/lines.jsonl")
<Commit … of readings: +2 rows, offsets 2 to 3>
>>> readings.append("inbox/login.json")
BrokenFile: inbox/login.json is not JSON: nothing in it is an object; it begins with '<!doctype html> <html><body>Please log in</body></html>'
  → it looks like a web page: fetch the file itself (is a login needed?)
>>> readings.append("inbox/cut.json")
BrokenFile: inbox/cut.json is not whole JSON: the array or object that is open there does not end (line 1)
  → fetch the file again: it may be truncated
>>> commit = readings.append("inbox/pretty.json")
BadCellsWarning: readings: 1 bad cell (temp 1), for example 'warm' in temp (inbox/pretty.json, line 1), null instead
  → look at commit.bad_cells(); max_bad=0 refuses such files
>>> commit
<Commit … of readings: +2 rows, offsets 4 to 5, 1 bad cell (temp 1), for example 'warm' in temp (inbox/pretty.json, line 1)>
>>> commit.bad_cells().show()
1 row, 5 columns
file               row  line  column  text
inbox/pretty.json    0     1  temp    warm
>>> readings.append("inbox/case.json")
SchemaError: column 'ID' of inbox/case.json differs from column 'id' only by case
  → rename it to 'id' if it is the same, else to something else
>>> readings.append("inbox/nested.json")
SchemaError: inbox/nested.json has a column that the dataset does not have
    + wind: is not a column of the dataset
  → rename it, or new_columns="add" adds them (--new-columns add), "ignore" leaves them out
>>> readings.append("inbox/nested.json", new_columns="add")
<Commit … of readings: +1 row, offset 6>
>>> readings.view().show()
7 rows, 4 columns
id  city   temp  wind
 1  Bern    4.5  –
 2  Zug       –  –
 5  Sion    9.0  –
 6  Sion   9.25  –
 3  Basel     –  –
 4  Chur      –  –
 9  Olten   3.0  {"from":"N","speed":12}
>>> readings.append([{"id": 11, "city": "Visp"}, {"id": "twelve", "city": "Brig"}])
SchemaError: column 'id': row 1 (counted from 0) is 'twelve', a str, which is not int64
  → give values of one type, or null where there is none
>>> import zipfile
>>> with zipfile.ZipFile("inbox/november.zip", "w") as archive:
...     archive.writestr("a.json", '[{"id": 11, "city": "Visp", "temp": 1}]')
...     archive.writestr("b.json", '[{"id": 12, "city": "Brig", "temp": 2}]')
>>> with zipfile.ZipFile("inbox/december.zip", "w") as archive:
...     archive.writestr("notes.txt", "nothing")
...     archive.writestr("c.json", '[{"id": 13, "city": "Leuk", "temp": 0}]')
>>> readings.append("inbox/november.zip")
InputError: inbox/november.zip has 2 members: 'a.json', 'b.json'
  → name one: reader=trueline.json(member='a.json'), or --member 'a.json'
>>> readings.append("inbox/november.zip", tl.json(member="b.json"))
<Commit … of readings: +1 row, offset 7>
$ cd weather
$ trueline ingest readings ../inbox/login.json
error: ../inbox/login.json is not JSON: nothing in it is an object; it begins with '<!doctype html> <html><body>Please log in</body></html>'
  → it looks like a web page: fetch the file itself (is a login needed?)
[exit 2]
$ trueline ingest readings ../inbox/december.zip --member c.json
readings  +1 row, offset 8, 1 file
$ trueline log readings -n 1
commit … (head)
Dataset: readings
Date:    … UTC
    +1 row, offset 8, … bytes
    files: ../inbox/december.zip#c.json
… older commits are not shown; -n 10 shows more, -n 0 all
$ trueline show readings
id  city   temp  wind
 1  Bern    4.5  –
 2  Zug       –  –
 5  Sion    9.0  –
 6  Sion   9.25  –
 3  Basel     –  –
 4  Chur      –  –
 9  Olten   3.0  {"from":"N","speed":12}
12  Brig    2.0  –
13  Leuk    0.0  –
readings@… (offset 8)
"""


def test_every_way_to_write_json(desk):
    desk.write(
        "inbox/array.json",
        '[\n  {"id": 1, "city": "Bern", "temp": 4.5},\n  {"id": 2, "city": "Zug", "temp": null}\n]\n',
    )
    desk.write(
        "inbox/pretty.json",
        '{\n  "id": 3,\n  "city": "Basel",\n  "temp": "warm"\n}\n{\n  "id": 4,\n  "city": "Chur"\n}\n',
    )
    desk.write(
        "inbox/lines.jsonl", '{"id": 5, "city": "Sion", "temp": 9}\n{"id": 6, "city": "Sion", "temp": 9.25}\n'
    )
    desk.write("inbox/login.json", "<!doctype html>\n<html><body>Please log in</body></html>\n")
    desk.write("inbox/cut.json", '[{"id": 7, "city": "Thun"}, {"id": 8, "ci')
    desk.write(
        "inbox/nested.json", '[{"id": 9, "city": "Olten", "temp": 3, "wind": {"from": "N", "speed": 12}}]'
    )
    desk.write("inbox/case.json", '{"ID": 10, "City": "Olten", "Temp": 3}')
    desk.play(TRANSCRIPT)
