"""A pytest plugin: collects which tests hold which contracts, and refuses marks nobody knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contracts.register import unknown

__all__ = ["pytest_addoption", "pytest_collection_finish", "pytest_collection_modifyitems"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--contracts-out", metavar="FILE", help="write which tests hold which contracts, as JSON"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    empty = [i.nodeid for i in items for mark in i.iter_markers("contract") if not mark.args]
    strangers = unknown(_marked(items)) + [f"an empty mark in {node}" for node in empty]
    if strangers:
        raise pytest.UsageError(
            f"no such contract: {'; '.join(strangers)} (see tests/contracts/contracts.json)"
        )


def pytest_collection_finish(session: pytest.Session) -> None:
    if out := session.config.getoption("--contracts-out"):
        holding = [
            i for i in session.items if not (i.get_closest_marker("skip") or i.get_closest_marker("xfail"))
        ]
        Path(out).write_text(json.dumps(_marked(holding)), encoding="utf-8")


def _marked(items: list[pytest.Item]) -> dict[str, list[str]]:
    """Test ids by contract id; marks of classes and modules count for every test in them."""
    marked: dict[str, list[str]] = {}
    for item in items:
        for mark in item.iter_markers("contract"):
            for name in mark.args:
                marked.setdefault(name, []).append(item.nodeid)
    return marked
