"""The benchmarks run: options are read, every scenario of our own side gives its rows."""

from __future__ import annotations

import dataclasses
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import data, ingest, sources
from bench.__main__ import SCENARIOS, arguments, main
from bench.chains import SLICES, Family, close, opened
from bench.run import Run
from bench.scale import FULL, NORMAL, QUICK, TINY
from bench.table import Row, duration, markdown, plain, rate, verdict
from bench.timing import Samples
from tests.examples import some
from trueline.chain.verify import verify_blocks
from trueline.readers import CsvReader, Source


def test_without_options_everything_is_measured_at_normal_scale():
    options = arguments([])
    assert (options.names, options.scale, options.peers) == ([], NORMAL, True)


@pytest.mark.parametrize(("word", "scale"), [("--tiny", TINY), ("--quick", QUICK), ("--full", FULL)])
def test_a_scale_is_chosen_by_name(word, scale):
    assert arguments([word, "plan"]).scale is scale


@pytest.mark.parametrize("words", [["speed"], ["--quick", "--full"]])
def test_words_that_mean_nothing_are_refused(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        arguments(words)
    assert stopped.value.code == 2
    assert capsys.readouterr().err


# These work on Spark: that of the suite, except for one, which starts a cluster.
ON_SPARK = {name for name in SCENARIOS if name.startswith("derive-")} | {"bank", "replay", "visible"}
CLUSTER = "views-spark"


def check_scenario(name, folder, capsys):
    assert main(["--tiny", "--no-peers", "--results", str(folder), name]) == 0
    kept = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    assert kept["machine"]["scale"] == "tiny"
    assert kept["rows"]
    assert all(row["ours"] or row["ratio"] for row in kept["rows"])
    shown = capsys.readouterr().out
    assert all(row["what"] in shown for row in kept["rows"])
    assert (folder / "table.md").read_text(encoding="utf-8").count("\n|") > len(kept["rows"])


@pytest.mark.sampled
@pytest.mark.parametrize("name", some(sorted(SCENARIOS.keys() - ON_SPARK - {CLUSTER}), 8))
def test_a_scenario_gives_rows_with_numbers(name, tmp_path, capsys):
    check_scenario(name, tmp_path, capsys)


@pytest.mark.sampled
@pytest.mark.parametrize("name", some(sorted(ON_SPARK), 4))
def test_a_scenario_on_spark_gives_rows_with_numbers(name, tmp_path, capsys, spark):
    check_scenario(name, tmp_path, capsys)


@pytest.mark.jvm
def test_a_scenario_on_a_cluster_gives_rows_with_numbers(tmp_path, capsys):
    check_scenario(CLUSTER, tmp_path, capsys)


def test_a_scenario_that_fails_is_said_and_the_others_are_kept(tmp_path, monkeypatch, capsys):
    def fails(run: Run):
        yield Row("ids", "first", rate(1, "ids"))
        raise RuntimeError("broken")

    monkeypatch.setitem(SCENARIOS, "ids", fails)
    assert main(["--tiny", "--results", str(tmp_path), "ids"]) == 1
    shown = capsys.readouterr()
    assert "ids failed: RuntimeError" in shown.out
    assert "first" in shown.out
    assert "broken" in shown.err


def test_prepared_chains_are_chains_that_verify(tmp_path):
    family = Family.write(tmp_path, 120)
    for place in (family.root, family.slow, family.sparse, family.joined):
        with opened(place) as chain:
            report = verify_blocks(chain)
            assert report.ok
            assert report.not_checked == ()
            tail = chain.tail()
            assert tail is not None
            assert report.blocks == tail.sequence_number + 1
            # What is planned is what the rules allow.
            assert chain.append(place.next_transaction(chain)).not_checked == ()


def test_the_sparse_derivative_has_twelve_slices_and_the_pair_advances_at_two_rates(tmp_path):
    family = Family.write(tmp_path, 600)
    chain = family.sparse.open()
    assert len(list(chain.slice_blocks(0, 10**9))) == SLICES
    close(chain)
    with opened(family.joined) as chain:
        taken = [block.event.query_inputs for _, block in chain.between(None) if block.data_event]
    fast = sum(inputs[0].new_block_hash is not None for inputs in taken)
    slow = sum(inputs[1].new_block_hash is not None for inputs in taken)
    assert fast > 50 * slow > 0


def test_a_table_shows_medians_goals_and_losses():
    samples = Samples((0.001, 0.002, 0.009))
    rows = [
        Row("x", "quick", duration(samples), duration(samples), 1.0, "≤ 1.2", True),
        Row("x", "slow", rate(5_000, "blocks"), goal="≥ 20,000/s", met=False, note="on a busy machine"),
        Row("x", "steep", ratio=2.0, goal="≤ 1.2", met=False),
    ]
    assert "2.00 ms (p95 9.00, n=3)" in plain(rows)
    assert "| slow | 5,000 blocks/s | – | – | ≥ 20,000/s | NO |" in markdown(rows)
    assert "on a busy machine" in markdown(rows)
    assert verdict(rows).splitlines() == [
        "1 of 3 goals met.",
        "  missed: slow: 5,000 blocks/s; goal ≥ 20,000/s",
        "  missed: steep: ratio 2.00; goal ≤ 1.2",
    ]


def test_ingest_stands_beside_plain_spark(spark, tmp_path):
    rows = list(ingest.run(Run(TINY, tmp_path)))
    assert [row.what.partition(" from ")[2] for row in rows] == [
        "one CSV file",
        "one CSV file, texts in quotes",
        "one Parquet file",
        "a Spark frame",
    ]
    assert all(row.ours and row.peer and row.met is (row.ratio <= float(row.goal.split()[1])) for row in rows)


def test_the_rows_taken_in_are_the_same_every_time_and_in_every_file(spark, tmp_path):
    table = pa.concat_tables(sources.chunks(500))
    assert pq.read_table(sources.write_parquet(tmp_path / "rows.parquet", 500)).equals(table)
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    for quoted in (False, True):
        path = sources.write_csv(tmp_path / "rows.csv", 500, quoted=quoted)
        [batch] = CsvReader().read(Source.file(path), sources.SCHEMA)
        assert pa.Table.from_batches([batch.table]).equals(table)
        read = session.read.schema(sources.SPARK_SCHEMA).csv(path.as_uri(), header=True)
        assert read.toArrow().cast(sources.SCHEMA).equals(table)
    made = sources.frame(session, 500).toArrow()
    assert made.cast(sources.SCHEMA).num_rows == 500


def test_what_has_no_room_is_not_measured(tmp_path):
    scale = dataclasses.replace(TINY, ingested=10**15, verified=10**15)
    for scenario in (ingest, data):
        [row] = scenario.run(Run(scale, tmp_path))
        assert "was not measured" in row.note
