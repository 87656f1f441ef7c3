"""Members of zip archives: each is a file of its own, known by its archive's bytes and its name there."""

from __future__ import annotations

import zipfile

import pytest

import trueline as tl
from trueline.dataset.append import files
from trueline.errors import InputError
from trueline.workspace.pull import seen


def packed(folder, name="days.zip", **members):
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for member, value in members.items():
            archive.writestr(f"{member}.csv", f"x\n{value}\n")
    return path


def values(ds):
    return ds.view().to_arrow()["x"].to_pylist()


def test_a_second_member_of_the_same_archive_is_not_known(ws, tmp_path):
    ds, path = ws.create("sales"), packed(tmp_path, monday=1, tuesday=2)
    first = ds.append(path, tl.csv(member="monday.csv"))
    second = ds.append(path, tl.csv(member="tuesday.csv"))
    assert (first.files, second.files) == ((f"{path}#monday.csv",), (f"{path}#tuesday.csv",))
    assert values(ds) == [1, 2]
    again = ds.append(path, tl.csv(member="monday.csv"))
    assert (again.rows, again.skipped) == (0, (f"{path}#monday.csv",))


def test_an_archive_of_one_member_is_the_same_by_either_name(ws, tmp_path):
    path = packed(tmp_path, monday=1)
    for name, one, other in (
        ("a", None, tl.csv(member="monday.csv")),
        ("b", tl.csv(member="monday.csv"), None),
    ):
        ds = ws.create(name)
        ds.append(path, one)
        assert ds.append(path, other).rows == 0
        assert values(ds) == [1]


def test_a_copy_of_an_archive_is_passed_over_by_name(ws, tmp_path):
    ds, path = ws.create("sales"), packed(tmp_path, monday=1, tuesday=2)
    copy = tmp_path / "copy.zip"
    copy.write_bytes(path.read_bytes())
    commit = ds.append([path, copy], tl.csv(member="monday.csv"))
    assert commit.duplicates == {f"{copy}#monday.csv": f"{path}#monday.csv"}
    assert values(ds) == [1]


def test_a_member_of_an_archive_that_changed_is_refused_unless_it_is_sent_again(ws, tmp_path):
    ds, path = ws.create("sales"), packed(tmp_path, monday=1, tuesday=2)
    ds.append(path, tl.csv(member="monday.csv"))
    packed(tmp_path, monday=3, tuesday=2)
    with pytest.raises(InputError, match=r"days\.zip#monday\.csv was appended before with other") as caught:
        ds.append(path, tl.csv(member="monday.csv"))
    assert caught.value.code == "FileChanged"
    ds.append(path, tl.csv(member="monday.csv"), resend=True)
    assert values(ds) == [1, 3]


def test_another_member_under_the_same_idempotency_key_is_other_data(ws, tmp_path):
    ds, path = ws.create("sales"), packed(tmp_path, monday=1, tuesday=2)
    first = ds.append(path, tl.csv(member="monday.csv"), idempotency_key="k")
    assert ds.append(path, tl.csv(member="monday.csv"), idempotency_key="k").block == first.block
    with pytest.raises(InputError, match="which added other data"):
        ds.append(path, tl.csv(member="tuesday.csv"), idempotency_key="k")


@pytest.fixture
def appended_before(ws, tmp_path, monkeypatch):
    """A member that an earlier version appended, which recorded the archive's name and bytes."""
    ds, path = ws.create("sales"), packed(tmp_path, monday=1, tuesday=2)
    with monkeypatch.context() as earlier:
        earlier.setattr(files.TakenFile, "name", property(lambda self: self.source.path))
        earlier.setattr(files, "identify", lambda file: files.FileIdentity(*files.hash_file(file.source)))
        commit = ds.append(path, tl.csv(member="monday.csv"), idempotency_key="k")
    assert commit.files == (str(path),)
    return ds, path, commit


def test_an_archive_that_an_earlier_version_appended_stays_known(appended_before):
    ds, path, commit = appended_before
    assert ds.append(path, tl.csv(member="monday.csv")).rows == 0
    assert ds.append(path, tl.csv(member="monday.csv"), idempotency_key="k").block == commit.block
    packed(path.parent, monday=5)
    with pytest.raises(InputError, match="was appended before with other content"):
        ds.append(path, tl.csv(member="monday.csv"))
    assert values(ds) == [1]


def test_a_pull_of_another_member_is_not_known_by_what_was_seen_of_the_archive(ws, tmp_path, monkeypatch):
    monkeypatch.setattr(seen, "SETTLED_NS", -(10**12))  # every file is old enough to be remembered
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    packed(inbox, monday=1, tuesday=2)
    source = [tl.source(inbox / "*.zip", tl.csv(member=f"{day}.csv")) for day in ("monday", "tuesday")]
    ds = ws.create("sales", source=source[0])
    assert ws.pull("sales").rows == 1
    with monkeypatch.context() as closed:
        closed.setattr(files, "identify", lambda file: pytest.fail("a file that was seen is opened"))
        assert ws.pull("sales").rows == 0
    ws.create("sales", source=source[1], on_change="from_here")
    assert ws.pull("sales").rows == 1
    assert values(ds) == [1, 2]
