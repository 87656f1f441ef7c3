"""The command line, called in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import trueline as tl
from trueline.cli import main


@dataclass
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command line: `run("-C", folder, "list")`."""
    monkeypatch.delenv("TRUELINE_WORKSPACE", raising=False)
    monkeypatch.delenv("TRUELINE_TRACEBACK", raising=False)

    def call(*words) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return call


@pytest.fixture
def shop(tmp_path):
    """A workspace with a dataset of three commits."""
    with tl.open(tmp_path / "shop", create=True) as ws:
        sales = ws.create("sales", description="What was sold")
        sales.append(pa.table({"city": ["Bern", "Basel"], "price": [9.5, 12.0]}))
        sales.append(pa.table({"city": ["Zug"], "price": [1.0]}))
    return tmp_path / "shop"
