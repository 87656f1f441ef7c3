"""A stranger's dataset says which files are polled; here it must not read them unasked."""

from __future__ import annotations

import itertools
import json
import os
import shutil

import pytest

import trueline as tl
from trueline.chain.events import SetPollingSource
from trueline.chain.head_state import next_block
from trueline.chain.sources import FetchFilesGlob, SourceOrdering
from trueline.cli.app import run
from trueline.errors import InputError, LinkRefused, PullError, SourceNotConfirmed
from trueline.workspace.transfer.origin import CopyOrigin, keep_origin, origin_of

pytestmark = pytest.mark.contract("guard:G4")
_numbers = itertools.count()


@pytest.fixture
def secrets(tmp_path):
    """Files of this machine that a stranger would like to have."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "salaries.csv").write_text("who,pay\nann,100\n")
    return folder


@pytest.fixture
def lure(tmp_path, secrets):
    """A stranger's dataset that polls those files; it is handed out by the stranger."""
    aside = tmp_path / "aside"
    secrets.rename(aside)
    secrets.mkdir()
    with tl.open(tmp_path / "stranger", create=True) as ws:
        reader = tl.csv()
        ws.create("lure", source=tl.source(str(secrets / "*.csv"), reader))
        place = ws._location.folder("lure")
    secrets.rmdir()
    aside.rename(secrets)
    return place


@pytest.fixture
def here(tmp_path):
    with tl.open(tmp_path / "here", create=True) as workspace:
        yield workspace


def copied(lure, workspace, name="lure"):
    """A dataset that came here by other means than `clone`, so that no origin is known."""
    shutil.copytree(lure, workspace._location.folder(name))
    return workspace[name]


def forget_all_but_the_datasets(workspace):
    """Lose `.trueline`, as on another machine."""
    workspace.close()
    shutil.rmtree(workspace._location.private, ignore_errors=True)


def test_a_clone_does_not_poll_when_the_private_folder_is_lost(lure, here):
    here.clone(lure)
    forget_all_but_the_datasets(here)
    report = here.pull()
    assert report["lure"].rows == 0
    assert report["lure"].source == str(lure), "the origin is known: it is part of the workspace"
    assert here["lure"].info.rows == 0


def test_a_clone_does_not_poll_when_nothing_is_known_of_its_origin(lure, here):
    ds = copied(lure, here)
    report = here.pull()
    assert (report.rows, ds.info.rows) == (0, 0)
    refused = report["lure"].refused
    assert isinstance(refused, SourceNotConfirmed)
    assert "salaries" not in str(refused)
    assert "--confirm lure" in report.to_dict()["datasets"][0]["refused"]["remedy"]


def test_a_pull_that_names_it_raises(lure, here):
    ds = copied(lure, here)
    with pytest.raises(PullError) as caught:
        here.pull("lure")
    assert isinstance(caught.value.report.errors["lure"], SourceNotConfirmed)
    assert ds.info.rows == 0


def test_the_remedy_works_and_lasts(lure, here, secrets):
    ds = copied(lure, here)
    assert ds.confirm_source() == str(secrets / "*.csv")
    assert here.pull()["lure"].rows == 1
    # Indexes can be thrown away at any time; a confirmation is not among them.
    here.close()
    shutil.rmtree(here._location.private / "index")
    (secrets / "more.csv").write_text("who,pay\nbob,50\n")
    assert here.pull("lure")["lure"].rows == 1


def test_a_source_that_changes_asks_again(lure, here, tmp_path):
    ds = copied(lure, here)
    ds.confirm_source()
    tail = ds.chain.tail()
    other = SetPollingSource(
        fetch=FetchFilesGlob(str(tmp_path / "other" / "*.csv"), order=SourceOrdering.ByName),
        read=tail.polling.read,
        merge=tail.polling.merge,
    )
    ds.chain.append(next_block(tail, other))
    assert isinstance(here.pull()["lure"].refused, SourceNotConfirmed)


def test_a_confirmation_is_of_one_dataset(lure, here, tmp_path, secrets):
    """Another dataset with the same source, under the same name, is not the one that was confirmed."""
    copied(lure, here).confirm_source()
    with tl.open(tmp_path / "stranger", create=True) as ws:
        again = ws.create("again", source=tl.source(str(secrets / "*.csv"), tl.csv()))
        place = ws._location.folder("again")
        assert again.chain.tail().polling == here["lure"].chain.tail().polling
    here.close()
    shutil.rmtree(here._location.folder("lure"))
    copied(place, here)
    assert isinstance(here.pull()["lure"].refused, SourceNotConfirmed)


def test_ones_own_source_is_polled_unasked(here, secrets):
    here.create("mine", source=str(secrets / "*.csv"))
    assert here.pull()["mine"].rows == 1


def test_a_key_that_is_lost_is_asked_about_once(here, secrets):
    ds = here.create("mine", source=str(secrets / "*.csv"))
    forget_all_but_the_datasets(here)
    assert isinstance(here.pull()["mine"].refused, SourceNotConfirmed)
    here["mine"].confirm_source()
    assert here.pull()["mine"].rows == 1
    assert ds.name in here


def test_others_are_pulled_though_one_is_not_confirmed(lure, here, secrets, tmp_path):
    copied(lure, here)
    here.create("mine", source=str(secrets / "*.csv"))
    report = here.pull()
    assert report.ok
    assert (report["mine"].rows, report["lure"].rows) == (1, 0)


def test_there_is_nothing_to_confirm_without_a_source_or_in_a_clone(lure, here):
    with pytest.raises(InputError, match="has no source"):
        here.create("plain").confirm_source()
    with pytest.raises(InputError, match="copy of"):
        here.clone(lure).confirm_source()


def test_on_the_command_line(lure, here, capsys):
    copied(lure, here)
    folder = str(here._location.path)
    assert run(["-C", folder, "pull"]) == 0
    shown = capsys.readouterr()
    assert "trueline pull --confirm lure" in shown.out + shown.err
    assert run(["-C", folder, "pull", "lure"]) == 2
    assert run(["-C", folder, "pull", "--confirm"]) == 2
    capsys.readouterr()
    assert run(["-C", folder, "pull", "--confirm", "lure", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 1


# --- origins -----------------------------------------------------------------------


def test_an_origin_lies_in_the_object_store_beside_the_datasets(lure, tmp_path, monkeypatch):
    url = f"memory://origins-{next(_numbers)}/lake"
    for machine in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine / "cache"))
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / machine / "data"))
        with tl.open(url, create=True) as ws:
            if machine == "one":
                ws.clone(lure)
            assert ws["lure"].origin.url == str(lure)
            assert ws.pull()["lure"].rows == 0
            assert list(ws) == ["lure"]
            assert ws["lure"].info.rows == 0


def test_an_origin_of_an_earlier_version_is_adopted(lure, here):
    clone = here.clone(lure)
    value = clone.origin.to_dict()
    del value["id"]
    here._location.write_origin("lure", None)
    former = here._location.keys.parent / "origins" / "lure.json"
    former.parent.mkdir()
    former.write_text(json.dumps(value))
    assert clone.origin.url == str(lure)
    here.pull()
    assert not former.exists()
    forget_all_but_the_datasets(here)
    assert here["lure"].origin.id == str(clone.id)


def test_an_origin_is_not_written_or_read_through_a_link(lure, here, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "lure.json").write_text("theirs")
    here._location.path.joinpath("datasets", ".origins").symlink_to(outside)
    with pytest.raises(LinkRefused):
        here.clone(lure)
    assert (outside / "lure.json").read_text() == "theirs"
    assert [path.name for path in outside.iterdir()] == ["lure.json"]


def test_an_origin_that_is_a_link_itself_is_replaced_and_not_followed(lure, here, tmp_path):
    theirs = tmp_path / "theirs.json"
    theirs.write_text("theirs")
    folder = here._location.path / "datasets" / ".origins"
    folder.mkdir()
    (folder / "lure.json").symlink_to(theirs)
    with pytest.raises(LinkRefused):
        origin_of(here._location, "lure")
    (folder / "lure.json").unlink()
    here.clone(lure)
    assert theirs.read_text() == "theirs"
    assert here["lure"].origin is not None


def test_an_origin_that_is_a_pipe_is_refused_and_not_waited_for(lure, here):
    clone = here.clone(lure)
    path = here._location.path / "datasets" / ".origins" / "lure.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(LinkRefused):
        _ = clone.origin


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"url": 1, "head": "x"}'])
def test_an_origin_that_is_not_understood_is_none_and_makes_nothing_poll(lure, here, content):
    here.clone(lure)
    here._location.write_origin("lure", content)
    assert here["lure"].origin is None
    assert isinstance(here.pull()["lure"].refused, SourceNotConfirmed)


@pytest.mark.parametrize("url", ["https://ann:secret@example.org/x?token=hidden", "s3://ann:secret@lake/x"])
def test_no_credentials_are_kept_with_an_origin(lure, here, url):
    clone = here.clone(lure)
    keep_origin(here._location, "lure", CopyOrigin(url, clone.head, clone.origin.updated))
    raw = here._location.read_origin("lure")
    assert b"secret" not in raw
    assert b"hidden" not in raw


def test_a_new_dataset_under_the_name_of_a_clone_that_was_deleted_is_not_a_clone(lure, here):
    here.clone(lure)
    here.close()
    shutil.rmtree(here._location.folder("lure"))
    assert here.create("lure").origin is None
