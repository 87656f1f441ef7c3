"""A workspace in a folder above that another user has put there: it is not used without being named."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import trueline as tl
from tests.architecture import SOURCE
from trueline.errors import UnsafeWorkspace
from trueline.workspace.user_config import UserConfig

pytestmark = [
    pytest.mark.contract("guard:G3"),
    pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root"),
]

THEM, US = 65_533, 65_534

# Everything is imported before: Python itself may be where the other user cannot read it.
AS_US = """
import json, os, sys
import trueline as tl
import trueline.workspace.user_config
import trueline.cli.inspect, trueline.cli.create, trueline.cli.maintain
from trueline.cli import main
with tl.open(sys.argv[1] + "/warm", create=True) as ws:
    ws.datasets(), ws.config["gc.older_than"]
uid, folder = int(sys.argv[2]), sys.argv[3]
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
os.chdir(folder)
sys.exit(main(json.loads(sys.argv[4])))
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder where everybody may write, as the one for temporary files."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        (Path(made) / "home").mkdir(mode=0o777)
        (Path(made) / "home").chmod(0o777)
        yield Path(made)


@pytest.fixture
def theirs(shared: Path) -> Path:
    """Another user has made that folder a workspace; below it is one of ours."""
    tl.open(shared, create=True).close()
    for path in (shared, *shared.rglob("*")):
        if path.name != "home":
            os.chown(path, THEM, THEM)
    (shared / "ours").mkdir()
    os.chown(shared / "ours", US, US)
    return shared


def ran(shared: Path, *words: str, uid: int = US, at: str = "ours", **environment: str):
    """Run a command line as a user, in a folder."""
    import json

    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "HOME": str(shared / "home")}
    with tempfile.TemporaryDirectory() as warm:
        return subprocess.run(
            [sys.executable, "-c", AS_US, warm, str(uid), str(shared / at), json.dumps(words)],
            capture_output=True,
            text=True,
            env={**kept, **environment},
        )


def test_a_workspace_of_another_user_above_is_refused(theirs):
    done = ran(theirs, "list", "--json")
    assert done.returncode == 2, done.stdout + done.stderr
    assert '"code": "UnsafeWorkspace"' in done.stderr
    assert str(theirs) in done.stderr
    at_once = ran(theirs, "list", at=".")
    assert at_once.returncode == 2, "the folder we are in was not named either"


def test_so_is_one_below_a_folder_that_was_named(theirs):
    assert ran(theirs, "-C", str(theirs / "ours"), "list").returncode == 2


def test_the_remedies_work(theirs):
    assert ran(theirs, "-C", str(theirs), "list").returncode == 0
    assert ran(theirs, "list", TRUELINE_WORKSPACE=str(theirs)).returncode == 0
    done = ran(theirs, "config", "set", "--user", "safe.directory", str(theirs))
    assert done.returncode == 0, done.stderr
    assert ran(theirs, "list").returncode == 0


@pytest.mark.parametrize("allowed", ["*", "{0}", "{0.parent}/*"])
def test_what_may_be_found_is_said_as_git_says_it(theirs, allowed):
    assert ran(theirs, "list", TRUELINE_SAFE_DIRECTORY=allowed.format(theirs)).returncode == 0


@pytest.mark.parametrize("allowed", ["{0}/ours", "{0.parent}", "{0}x", "/nowhere/*"])
def test_another_folder_allows_nothing(theirs, allowed):
    assert ran(theirs, "list", TRUELINE_SAFE_DIRECTORY=allowed.format(theirs)).returncode == 2


@pytest.mark.parametrize("part", [".", "trueline.toml", ".trueline"])
def test_every_part_of_it_must_be_ours(theirs, part):
    (theirs / ".trueline").mkdir(exist_ok=True)
    for path in (theirs, theirs / "trueline.toml", theirs / ".trueline"):
        os.chown(path, US, US)
    assert ran(theirs, "list").returncode == 0
    os.chown(theirs / part, THEM, THEM)
    assert ran(theirs, "list").returncode == 2


def test_a_link_of_theirs_to_a_file_of_ours_is_theirs(theirs):
    mine = theirs / "ours" / "kept.toml"
    mine.write_text("format = 1\n")
    os.chown(mine, US, US)
    os.chown(theirs, US, US)
    (theirs / "trueline.toml").unlink()
    (theirs / "trueline.toml").symlink_to(mine)
    os.lchown(theirs / "trueline.toml", THEM, THEM)
    assert ran(theirs, "list").returncode == 2


def test_root_uses_its_own_and_under_sudo_those_of_who_called_it(theirs):
    assert ran(theirs, "list", uid=0).returncode == 2
    assert ran(theirs, "list", uid=0, SUDO_UID=str(THEM)).returncode == 0
    assert ran(theirs, "list", uid=0, SUDO_UID=str(US)).returncode == 2
    assert ran(theirs, "list", SUDO_UID=str(THEM)).returncode == 2, "only root can have been called by sudo"


def test_settings_of_a_home_that_is_not_ours_are_not_used(theirs):
    settings = theirs / "home" / ".config" / "trueline"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text('[safe]\ndirectory = ["*"]\n')
    (settings / "config.toml").chmod(0o600)
    done = ran(theirs, "list")
    assert done.returncode == 2, "it cannot be read, so nothing in it counts"
    assert "UnsafeWorkspace" in ran(theirs, "list", "--json").stderr


def test_one_of_our_own_is_found(shared):
    tl.open(shared, create=True).close()
    (shared / "below").mkdir()
    assert ran(shared, "list", at="below", uid=0).returncode == 0


def test_the_error_is_typed(theirs):
    with pytest.raises(UnsafeWorkspace) as refused:
        UserConfig().check_owner(theirs)
    assert refused.value.path == str(theirs)
