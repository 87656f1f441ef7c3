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
