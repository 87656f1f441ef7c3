"""The page on security names every contract of the guard and every module of attacks, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contracts.register import contracts

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_contract_of_the_guard_is_promised_on_the_page():
    named = set(re.findall(r"`(guard:G\d+)`", PAGE))
    assert named == {name for name in contracts() if name.startswith("guard:")}


def test_every_module_of_attacks_is_named_and_there():
    named = set(re.findall(r"`(test_\w+\.py)`", PAGE))
    assert named == {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}


def test_there_is_a_way_to_report_a_vulnerability():
    assert "How to report" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
