# ruff: noqa: E501
"""Spark: read a dataset by name, write it back, follow its changes, and join what it was with what it is."""

import pytest

TRANSCRIPT = r"""
>>> import trueline as tl
>>> ws = tl.open("shop", create=True)
>>> sales = ws.create("sales", merge=tl.merge.upsert("id"))
>>> sales.append("sales.csv")
<Commit … of sales: +3 rows, offsets 0 to 2>
>>> ws.sql("select city, sum(price) as total from sales group by city order by city").show()
2 rows, 2 columns
city  total
Bern   20.5
Zug    30.0
>>> ws.sql("select * from sale").show()
UnsafeQuery: `sale` is not a dataset of the workspace (line 1, column 15)
    select * from sale
                  ^^^^
  → did you mean 'sales'?; where every query is your own, open the workspace with trusted_sql=True (`trueline sql --trusted-sql`)
>>> ws.sql("select citty from sales").show()
QueryError: A column, variable, or function parameter with name `citty` cannot be resolved. Did you mean one of the following? [`city`, `id`, `day`, `price`]. (line 1, column 8)
    select citty from sales
           ^^^^^
  → fix the query there
>>> spark = sales.view().to_spark().sparkSession
>>> from trueline.spark.source import register
>>> register(spark)
>>> frame = spark.read.format("trueline").option("dataset", "sales").load(ws.location)
>>> frame.orderBy("id").show()
+---+----------+----+-----+
| id|       day|city|price|
+---+----------+----+-----+
|  1|2026-11-12|Bern|  9.5|
|  2|2026-11-12| Zug| 30.0|
|  3|2026-11-13|Bern| 11.0|
+---+----------+----+-----+

>>> frame.printSchema()
root
 |-- id: long (nullable = true)
 |-- day: date (nullable = true)
 |-- city: string (nullable = true)
 |-- price: double (nullable = true)

>>> bern = ws.create("bern", merge=tl.merge.snapshot("id"))
>>> writer = frame.where("city = 'Bern'").write.format("trueline").option("dataset", "bern")
>>> writer.mode("overwrite").save(ws.location)
>>> bern.view().show()
2 rows, 4 columns
id  day         city  price
 1  2026-11-12  Bern    9.5
 3  2026-11-13  Bern   11.0
>>> sales.append([{"id": 3, "city": "Chur"}])
<Commit … of sales: ~1 row, offsets 3 to 4>
>>> then = spark.read.format("trueline").option("dataset", "sales").option("at", "offset:2").load(ws.location)
>>> frame.where("city = 'Bern'").count(), then.where("city = 'Bern'").count()
(2, 2)
>>> now = spark.read.format("trueline").option("dataset", "sales").load(ws.location)
>>> now.where("city = 'Bern'").write.format("trueline").option("dataset", "bern").mode("overwrite").save(ws.location)
>>> bern.view().show()
1 row, 4 columns
id  day         city  price
 1  2026-11-12  Bern    9.5
>>> bern.commit().changes
'-1 row'
>>> now.write.format("trueline").option("dataset", "sales").mode("overwrite").save(ws.location)
AnalysisException: [PYTHON_DATA_SOURCE_ERROR] …
…
trueline.errors.InputError: mode("overwrite") replaces all rows, and sales merges by upsert('id'), which keeps them
  → use .mode("append"), or write to a dataset created with merge=trueline.merge.snapshot(…)
…
>>> from trueline.spark.errors import translated
>>> with translated():
...     now.write.format("trueline").option("dataset", "sales").mode("overwrite").save(ws.location)
InputError: mode("overwrite") replaces all rows, and sales merges by upsert('id'), which keeps them
  → use .mode("append"), or write to a dataset created with merge=trueline.merge.snapshot(…)
>>> with translated():
...     now.withColumnRenamed("city", "town").write.format("trueline").option("dataset", "bern").mode("append").save(ws.location)
SchemaError: the table does not fit the dataset
    + town: String is not a column of the dataset
  → cast, rename or drop these columns, or append to a new dataset; .option("newColumns", "add") adds them, "ignore" leaves them out
>>> log = ws.create("log")
>>> changes = spark.readStream.format("trueline").option("dataset", "sales").option("changes", "true").load(ws.location)
>>> stream = changes.selectExpr("`offset` as n", "op as did", "id", "city").writeStream.format("trueline")
>>> stream = stream.option("workspace", ws.location).option("dataset", "log").option("name", "log-of-sales").option("checkpointLocation", ws.location + "-check")
>>> query = stream.trigger(availableNow=True).start()
>>> query.awaitTermination()
>>> log.view().show()
5 rows, 4 columns
n  did               id  city
0  insert             1  Bern
1  insert             2  Zug
2  insert             3  Bern
3  update_preimage    3  Bern
4  update_postimage   3  Chur
>>> log.commit().idempotency_key
'spark/log-of-sales/0'
>>> log.append(now.selectExpr("id", "city"))
SchemaError: the table does not fit the dataset
    - n: Int64 is missing
    - did: String is missing
  → cast, rename or drop these columns, or append to a new dataset
>>> ws.sql("select s.id, b.id as in_bern from `sales@offset:2` s left join bern b on s.id = b.id order by s.id").show()
3 rows, 2 columns
id  in_bern
 1        1
 2        –
 3        –
>>> ws.verify().ok
True
"""


@pytest.mark.usefixtures("spark")
def test_read_and_written_by_spark(desk):
    desk.write(
        "sales.csv",
        "id,day,city,price\n1,2026-11-12,Bern,9.5\n2,2026-11-12,Zug,30.0\n3,2026-11-13,Bern,11.0\n",
    )
    desk.play(TRANSCRIPT)
