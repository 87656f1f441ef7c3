"""A dataset with two commits and state, the server in front of it, and a workspace to bring it to."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.chain.store.small_s3 import serving as serving_s3
from tests.workspace.transfer.serving import serving
from trueline.workspace import http

_numbers = itertools.count()


@pytest.fixture
def source(tmp_path):
    with tl.open(tmp_path / "source", create=True) as ws:
        made = ws.create("trades", merge=tl.merge.upsert("k"))
        made.append(pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}))
        made.append(pa.table({"k": [2, 9], "v": ["B", "z"]}))
        yield made


@pytest.fixture
def there(tmp_path):
    with tl.open(tmp_path / "there", create=True) as ws:
        yield ws


@pytest.fixture
def server(source, monkeypatch):
    monkeypatch.setattr(http, "pause", lambda _: None)
    with serving(Path(source.chain.store.location).parent) as served:
        yield served


@pytest.fixture
def url(server):
    return f"{server.url}/trades"


@pytest.fixture(params=["folder", "http", "memory", "s3"])
def place(request, source):
    """Where the source can be read from: its address, and the options to reach it."""
    if request.param == "folder":
        yield source.chain.store.location, {}
    elif request.param == "http":
        yield request.getfixturevalue("url"), {}
    elif request.param == "memory":
        address = f"memory://transfer-{next(_numbers)}/lake/trades"
        source.push(address)
        yield address, {}
    else:
        with serving_s3() as s3:
            source.push("s3://bucket/lake/trades", **s3.options)
            yield "s3://bucket/lake/trades", s3.options
