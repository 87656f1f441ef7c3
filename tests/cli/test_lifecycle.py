"""Commands of a dataset's life."""

from __future__ import annotations

import pyarrow as pa

import trueline as tl


def test_a_tag_is_made_listed_used_and_removed(run, shop):
    assert "no tags yet" in run("-C", shop, "tag").out
    with tl.open(shop) as ws:
        first = next(commit for commit in ws["sales"].log() if commit.rows == 2)
    done = run("-C", shop, "tag", "v1", f"sales@{first.short}")
    assert (done.code, done.out.split()) == (0, ["tag", "dataset", "commit", "v1", "sales", first.short])
    assert [row["city"] for row in run("-C", shop, "show", "sales@v1", "--json").json["rows"]] == [
        "Bern",
        "Basel",
    ]
    assert len(run("-C", shop, "diff", "sales@v1", "--json").json["rows"]) == 1
    assert f"commit {first.block} (tag: v1)\n" in run("-C", shop, "log").out
    assert f"commit {first.block} (tag: v1)\n" in run("-C", shop, "log", "sales@v1").out
    assert run("-C", shop, "tag", "--json").json["tags"][0]["datasets"] == {"sales": str(first.block)}
    assert run("-C", shop, "tag", "v1", "--delete").code == 0
    assert run("-C", shop, "tag", "--json").json == {"tags": []}


def test_a_tag_needs_a_good_name_and_a_dataset(run, shop):
    for words, code in (
        (("2026-11-13", "sales"), "BadTag"),
        (("v1",), "InputError"),
        (("v1", "sals"), "DatasetNotFound"),
        (("v1", "--delete"), "TagNotFound"),
        (("--delete",), "InputError"),
    ):
        done = run("-C", shop, "tag", *words, "--json")
        assert (done.code, done.error["code"]) == (2, code), words


def test_the_remedy_of_a_tag_that_exists_works(run, shop):
    with tl.open(shop) as ws:
        run("-C", shop, "tag", "v1", "sales")
        ws["sales"].append(pa.table({"city": ["Chur"], "price": [1.0]}))
    done = run("-C", shop, "tag", "v1", "sales", "--json")
    assert (done.code, done.error["code"]) == (2, "TagExists")
    assert "`trueline tag v1 --delete`" in done.error["remedy"]
    assert run("-C", shop, "tag", "v1", "--delete").code == 0
    assert run("-C", shop, "tag", "v1", "sales").code == 0


def test_a_dataset_is_deleted_when_that_is_confirmed(run, shop):
    asked = run("-C", shop, "delete", "sales", "--json")
    assert (asked.code, asked.error["code"]) == (2, "NotConfirmed")
    assert "trueline delete sales --yes" in asked.error["remedy"]
    assert "sales" in run("-C", shop, "list").out
    done = run("-C", shop, "delete", "sales", "--yes")
    assert (done.code, done.out) == (0, "deleted sales; `trueline gc` frees its room\n")
    assert "no datasets yet" in run("-C", shop, "list").out
    swept = run("-C", shop, "gc", "--older-than", "0s")
    assert "removed deleted datasets: sales" in swept.out
    assert run("-C", shop, "delete", "sales", "--yes").code == 2


def test_a_no_at_the_terminal_deletes_nothing(run, shop, monkeypatch):
    monkeypatch.setattr(
        "trueline.console.TerminalConsole.confirm", lambda _, question: "3 rows" not in question
    )
    done = run("-C", shop, "delete", "sales")
    assert (done.code, done.out) == (1, "sales was not deleted\n")
    with tl.open(shop) as ws:
        assert "sales" in ws


def test_what_rests_on_a_dataset_is_named(run, shop):
    run("-C", shop, "tag", "v1", "sales")
    done = run("-C", shop, "delete", "sales", "--yes", "--json")
    assert (done.code, done.error["code"], done.error["tags"]) == (2, "DatasetInUse", ["v1"])


def test_a_source_is_changed(run, shop, tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n2\n")
    assert run("-C", shop, "create", "polled", "--source", tmp_path / "a.csv").code == 0
    refused = run("-C", shop, "create", "polled", "--source", tmp_path / "b.csv", "--json")
    assert refused.error["code"] == "DatasetExists"
    assert "--on-change from_here" in refused.error["remedy"]
    words = ("create", "polled", "--source", tmp_path / "b.csv", "--on-change", "from_here")
    assert run("-C", shop, *words).code == 0
    assert run("-C", shop, "pull", "polled").code == 0
    assert run("-C", shop, "show", "polled", "--json").json["rows"] == [{"x": 2}]


def test_a_dataset_is_renamed(run, shop):
    assert run("-C", shop, "rename", "sales", "orders").out == "sales is now called orders\n"
    assert run("-C", shop, "show", "orders").code == 0
    assert run("-C", shop, "show", "sales").code == 2


def test_a_column_is_hidden_and_shown_again(run, shop):
    done = run("-C", shop, "hide-column", "sales", "price")
    assert (done.code, done.out) == (0, "sales: price is hidden\n")
    assert run("-C", shop, "show", "sales", "--json").json["rows"][0] == {"city": "Bern"}
    assert "price" not in run("-C", shop, "schema", "sales").out
    assert "price (hidden)" in run("-C", shop, "schema", "sales", "--system").out
    assert run("-C", shop, "show-column", "sales", "price", "--json").json["columns"] == ["city", "price"]
    assert run("-C", shop, "hide-column", "sales", "prize", "--json").error["code"] == "UnknownColumn"
