"""Plans: what nodes know without being run, and that each of them can be."""

from __future__ import annotations

import gc
import importlib
import pickle
import pkgutil
import weakref

import pyarrow as pa
import pytest

import trueline as tl
from tests.architecture import PACKAGE, imports, module_name
from trueline.errors import InputError
from trueline.view import execute, plan
from trueline.view.plan.node import IdRule, Node, Want, described, steps
from trueline.view.source_cells import bad_cells


def node_classes() -> list[type[Node]]:
    """All classes of nodes that views are made of."""
    names = [each.name for each in pkgutil.iter_modules(plan.__path__)]
    modules = [importlib.import_module(f"{plan.__name__}.{name}") for name in names]
    found = {
        name: made
        for module in modules
        for name, made in vars(module).items()
        if isinstance(made, type) and issubclass(made, Node) and made.__module__ == module.__name__
    }
    return [made for made in found.values() if not _is_base(made, found.values())]


def _is_base(made, others) -> bool:
    return any(other is not made and issubclass(other, made) for other in others)


TABLE = pa.table({"n": [3, 1, 2, 1], "t": ["a", "b", "c", "b"], "v": [[1.0], [2.0], [], None]})
OTHER = pa.table({"n": [1, 2, 9], "w": [10, 20, 90]})


def views() -> dict[str, tl.View]:
    """A view for each verb, all over the same table."""
    view, other = (tl.View.from_arrow(each) for each in (TABLE, OTHER))
    return {
        "Filter": view.filter("n > :a", a=1),
        "Select": view.select("t", "n"),
        "WithColumns": view.with_columns(m="n + 1"),
        "Limit": view.limit(2),
        "LastRows": view.tail(2),
        "Sort": view.sort("n"),
        "Shuffle": view.shuffle(7),
        "Sample": view.sample(0.5, 3),
        "Concat": view.concat(view),
        "Zip": view.zip(other),
        "Join": view.join(other, on="n"),
        "GroupBy": view.group_by("n").agg(all="count(*)"),
        "Window": view.window(1, total="sum(n)"),
        "Explode": view.explode("v"),
        "Cache": view.cache(),
        "Memory": view,
        "Numbers": tl.View.range(4),
    }


def test_every_node_has_an_execution_in_this_process():
    classes = node_classes()
    assert {"Join", "GroupBy", "Memory", "ParquetFiles", "SourceScan"} <= {each.__name__ for each in classes}
    missing = execute.pieces.dispatch(Node)
    assert [each.__name__ for each in classes if execute.pieces.dispatch(each) is missing] == []


def test_a_node_without_an_execution_is_an_error_that_names_it():
    class Unknown(Node):
        schema = inputs = title = wants = None

    with pytest.raises(NotImplementedError, match="Unknown"):
        execute.pieces(Unknown(), Want(()))


def test_plans_do_not_know_how_they_are_run():
    found = [
        each.target
        for path in sorted((PACKAGE / "view" / "plan").glob("*.py"))
        for each in imports(module_name(path), path.read_text(encoding="utf-8"))
        if each.target.startswith(("trueline.view.execute", "trueline.view.sources", "trueline.view.cursor"))
    ]
    assert found == []


def test_a_verb_has_the_same_file_name_in_plan_and_execute():
    names = {
        folder: {path.stem for path in (PACKAGE / "view" / folder).glob("*.py")}
        for folder in ("plan", "execute")
    }
    # What several verbs share, and verbs that are made of the nodes of others.
    shared, composed = {"node", "sources", "aggregates", "same_type"}, {"decode", "fill_null"}
    assert names["plan"] - names["execute"] == shared | composed
    assert not composed & {each.__module__.rpartition(".")[2] for each in node_classes()}
    assert names["execute"] - names["plan"] == {"dispatch"}


@pytest.mark.parametrize("name", list(views()))
def test_a_plan_read_elsewhere_is_the_same_plan(name):
    node = views()[name].node
    assert type(node).__name__ == name
    sent = pickle.loads(pickle.dumps(node))
    assert sent.schema == node.schema
    assert sent is not node
    assert tl.View(sent).to_arrow() == tl.View(node).to_arrow()
    if name != "Cache":
        assert sent.key == node.key


def test_a_cache_travels_as_its_input():
    below = tl.View.from_arrow(TABLE).filter("n > 1")
    sent = pickle.loads(pickle.dumps(below.cache().node))
    assert sent.key == below.node.key


@pytest.mark.contract("view:C101")
def test_a_view_is_not_serialisable():
    with pytest.raises(InputError, match="cannot be serialised"):
        pickle.dumps(tl.View.from_arrow(TABLE))


def test_plans_are_compared_by_identity_and_have_keys_by_what_they_do():
    view = tl.View.from_arrow(TABLE)
    one, other = view.filter("n > :a", a=1), view.filter("n > :a", a=1)
    assert one.node != other.node
    assert one.node.key == other.node.key
    assert view.filter("n > :a", a=2).node.key != one.node.key
    assert one.limit(1).node.key == other.limit(1).node.key != one.limit(2).node.key
    assert one.sort("n").node.key != one.sort("n", descending=True).node.key


def test_the_keys_of_different_verbs_differ():
    keys = [view.node.key for view in views().values()]
    assert len(set(keys)) == len(keys)


def test_sources_and_caches_have_keys_of_their_own():
    assert tl.View.from_arrow(TABLE).node.key != tl.View.from_arrow(TABLE).node.key
    view = tl.View.from_arrow(TABLE)
    assert view.cache().node.key != view.cache().node.key
    kept = view.cache()
    assert kept.node.key == kept.node.key


def test_a_parameter_that_is_not_known_is_equal_to_nothing():
    assert described(lambda: 1) != described(lambda: 1)
    assert described(object()) != described(object())
    assert described(len) == described(len)


def test_what_is_kept_goes_with_its_node():
    view = tl.View.from_arrow(TABLE).filter("n > 1").cache()
    assert view.row_count is None
    assert view.count() == 2
    assert view.row_count == 2
    gone = weakref.ref(view.node)
    del view
    gc.collect()
    assert gone() is None


def test_what_reading_finds_out_is_not_part_of_the_node(tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\nx\n3\n")
    view = tl.View.read_csv(tmp_path / "a.csv", schema=pa.schema({"n": pa.int64()}))
    before = dict(vars(view.node))
    assert bad_cells(view.node) == {}
    assert view.count() == 3
    view.to_arrow()
    assert dict(view.bad) == bad_cells(view.node) == {"n": 1}
    assert view.node.row_count is None
    assert view.row_count == 3
    assert {name: value for name, value in vars(view.node).items() if name in before} == before


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Filter", IdRule.UNCHANGED),
        ("Concat", IdRule.CONCAT),
        ("Zip", IdRule.FIRST_INPUT),
        ("Join", IdRule.JOIN),
        ("GroupBy", IdRule.FIRST_ROW),
        ("Explode", IdRule.FORK),
        ("Memory", IdRule.ORDINAL),
    ],
)
def test_a_node_says_how_ids_are_made(name, rule):
    assert views()[name].node.id_rule is rule


def test_steps_come_after_what_they_are_made_of():
    node = tl.View.from_arrow(TABLE).filter("n > 1").sort("n").node
    assert [type(each).__name__ for each in steps(node)] == ["Memory", "Filter", "Sort"]


def test_whether_a_plan_travels_is_answered_without_opening_anything():
    class Closed:
        schema, origins, ordinal, row_count = TABLE.schema, {}, None, None

        def pieces(self, bounds=None, parts=0):
            raise AssertionError("opened")

        def explain(self):
            return ["closed"]

    closed = tl.View(Closed())
    assert execute.portable(closed.filter("n > 1").node)
    assert not execute.portable(closed.sort("n").node)
    Closed.travels = False
    assert not execute.portable(closed.filter("n > 1").node)
