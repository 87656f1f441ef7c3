from __future__ import annotations

import subprocess
import sys

import pytest

import trueline.identity


def test_every_public_name_is_there():
    for name in trueline.identity.__all__:
        assert getattr(trueline.identity, name).__name__ == name
    assert dir(trueline.identity) == sorted(trueline.identity.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        trueline.identity.nothing  # noqa: B018


def test_importing_the_room_loads_nothing_heavy():
    code = (
        "import sys, trueline.identity as i; i.Multihash.of(b''); i.RowId(1).fork(); i.physical_hash(b'')\n"
        "print([name for name in ('numpy', 'pyarrow', 'cryptography') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
