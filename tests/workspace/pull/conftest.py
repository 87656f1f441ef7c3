from __future__ import annotations

import pytest

from tests.workspace.pull.serving import serving
from trueline.workspace import http


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(http, "pause", lambda _: None)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving() as found:
        yield found


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder
