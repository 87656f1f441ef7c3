"""Views made of the same views many times over: a question costs what there are nodes, not ways to them."""

from __future__ import annotations

import pickle
from collections import Counter

import pyarrow as pa
import pytest

import trueline as tl
from tests.view.watched import Watched, numbers
from trueline.view import execute
from trueline.view.execute.limit import LimitPiece
from trueline.view.origin import Origin
from trueline.view.plan.node import Node, Want, steps
from trueline.view.plan.sources import SourceScan

TIMES = 40


class Asked(Node):
    """A node that counts what it is asked, and would answer 2**40 times."""

    def __init__(self, below: Node):
        self.below, self.asked = below, Counter()

    @property
    def inputs(self):
        self.asked["inputs"] += 1
        return (self.below,)

    @property
    def schema(self):
        return self.below.schema

    def count_rows(self, counts):
        self.asked["row_count"] += 1
        return counts[0]

    @property
    def can_shuffle(self):
        self.asked["can_shuffle"] += 1
        return True

    @property
    def origins(self):
        self.asked["origins"] += 1
        return {"towns": Origin("towns", "did:odf:towns", None, 7)}

    @property
    def title(self):
        self.asked["title"] += 1
        return "asked"

    def wants(self, want):
        return (want,)

    def passed(self, column):
        return 0, column


@execute.pieces.register(Asked)
def _pieces(node, want):
    node.asked["pieces"] += 1
    return execute.pieces(node.below, want)


@execute.portable.register(Asked)
def _portable(node):
    node.asked["portable"] += 1
    return execute.portable(node.below)


def doubled(below: Node, between=lambda view: view) -> tuple[tl.View, Asked]:
    """A view put after itself forty times, on what counts the questions."""
    asked = Asked(below)
    view = tl.View(asked)
    for _ in range(TIMES):
        view = view.concat(between(view))
    return view, asked


def in_memory(rows: int) -> Node:
    return tl.View.from_arrow(numbers(rows)).node


# Another node over the same one shares it as much as the very same node does.
BETWEEN = [
    lambda view: view,
    lambda view: view.filter("n < 2"),
    lambda view: view.rename({"half": "other"}).rename({"other": "half"}),
]


@pytest.mark.parametrize("between", BETWEEN, ids=["itself", "filtered", "renamed"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda view: view.row_count,
        lambda view: view.can_shuffle,
        lambda view: view.origins,
        lambda view: view.removed,
        lambda view: view.bad,
        lambda view: view.origin("n"),
        lambda view: view.explain("n"),
        lambda view: execute.portable(view.node),
        lambda view: list(steps(view.node)),
        repr,
    ],
    ids=[
        "row_count",
        "shuffle",
        "origins",
        "removed",
        "bad",
        "origin",
        "explain",
        "portable",
        "steps",
        "repr",
    ],
)
def test_a_question_reaches_a_shared_node_a_few_times_not_once_for_every_way_to_it(ask, between):
    view, asked = doubled(in_memory(3), between)
    ask(view)
    assert max(asked.asked.values(), default=0) <= 8


def test_what_is_asked_of_shared_nodes_is_answered_as_of_others():
    view, _ = doubled(in_memory(3))
    assert view.count() == 3 << TIMES
    assert view.origins["towns"].dataset == "towns"
    assert view.can_shuffle
    assert execute.portable(view.node)
    assert len(list(steps(view.node))) == TIMES + 2


def test_a_step_that_is_reached_again_is_explained_once():
    view, _ = doubled(in_memory(3))
    lines = view.explain("n").splitlines()
    assert sum(line.strip() == "as above" for line in lines) == TIMES
    assert len(lines) < 6 * TIMES
    both = tl.View(in_memory(3)).filter("n > 0")
    once, again = both.select("n"), both.select("half")
    # Other columns are another thing to say.
    assert "as above" not in once.zip(again).explain()


def test_how_many_rows_there_are_is_asked_anew_each_time():
    below = tl.View(SourceScan(Watched(numbers(5), counted=False))).cache()
    view = below.concat(below)
    assert view.row_count is None
    below.to_arrow()
    assert view.row_count == 10


@pytest.mark.parametrize("rows", [0, 3])
def test_the_first_rows_are_read_of_the_first_piece(rows):
    view, asked = doubled(in_memory(rows))
    first = view.limit(5)
    assert first.count() == min(5, rows << TIMES)
    assert first.to_arrow()["n"].to_pylist() == [0, 1, 2, 0, 1][: min(5, rows << TIMES)]
    with first.cursor("n") as cursor:
        assert cursor.move_next() is bool(rows)
    assert asked.asked["pieces"] <= 2 * 2
    assert view.limit(0).to_arrow().num_rows == 0


def test_an_empty_view_is_read_whole_however_often_it_is_put_after_itself():
    view, asked = doubled(in_memory(0))
    assert view.count() == 0
    assert view.to_arrow().num_rows == 0
    assert not any(cursor.move_next() for cursor in view.cursor_set("n", 4))
    assert asked.asked["pieces"] <= 2 * 2


@pytest.mark.parametrize("between", BETWEEN, ids=["itself", "filtered", "renamed"])
def test_of_rows_that_are_not_counted_the_first_are_read_too(between):
    source = Watched(numbers(30), counted=False)
    view, _ = doubled(SourceScan(source), between)
    narrow = view.with_columns(twice="2 * n").filter("n < 20").select("n", "twice").limit(25)
    assert narrow.to_arrow()["twice"].to_pylist()[:20] == [2 * n for n in range(20)]
    assert narrow.count() == 25
    assert source.log.rows < 10_000


def test_a_cursor_over_all_of_it_gives_rows_and_their_ids():
    view, _ = doubled(in_memory(2))
    small = tl.View(in_memory(2))
    for _ in range(TIMES):
        small = small.concat()
    with view.cursor("n") as cursor, small.cursor("n") as plain:
        assert cursor.move_next()
        assert plain.move_next()
        assert cursor.id == plain.id
    members = view.cursor_set("n", 3)
    assert [member.move_next() for member in members] == [True] * 3
    assert [member.batch for member in members] == [0, 1, 2]
    for member in members:
        member.close()


@pytest.mark.parametrize("times", [12, 13])
def test_pieces_that_are_made_when_asked_for_are_those_made_at_once(times):
    view = tl.View.from_arrow(pa.table({"n": [1, 2]}))
    for _ in range(times):
        view = view.concat(view)
    pieces = execute.pieces(view.with_columns(m="n + 1").node, Want((0, 1), ids=True))
    assert isinstance(pieces, list) is (times == 12)
    assert len(pieces) == 1 << times
    assert pieces[-1].rows == 2
    with pytest.raises(IndexError):
        pieces[1 << times]
    at = [0, 1, 77, (1 << times) - 1]
    ids = [next(iter(pieces[place].chunks())).ids.low.tolist() for place in at]
    listed = list(pieces)
    assert ids == [next(iter(listed[place].chunks())).ids.low.tolist() for place in at]
    assert len({tuple(each) for each in ids}) == len(at)
    assert [piece.rows for piece in pieces[5:8]] == [2, 2, 2]


def test_a_limit_over_many_pieces_travels_as_little():
    view, _ = doubled(SourceScan(Watched(numbers(30), counted=False)))
    (piece,) = execute.pieces(tl.View(view.node.views[0]).limit(3).node, Want((0,)))
    assert isinstance(piece, LimitPiece)
    assert piece.rows is None


def test_pieces_made_when_asked_for_can_be_pickled():
    view = tl.View.from_arrow(pa.table({"n": [1, 2]})).filter("n > 1")
    for _ in range(TIMES):
        view = view.concat(view)
    (piece,) = execute.pieces(view.limit(3).node, Want((0,)))
    sent = pickle.dumps(piece)
    assert len(sent) < 20_000
    chunks = [chunk.arrays[0].to_pylist() for chunk in pickle.loads(sent).chunks()]
    assert chunks == [[2], [2], [2]]
