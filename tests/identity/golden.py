"""The golden data of this room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden" / "identity"


def golden(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())
