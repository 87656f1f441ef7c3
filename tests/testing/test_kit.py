"""The kit catches what it was made to catch, says so well, and lets honest views pass."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import trueline as tl
from tests.testing import broken_components as parts
from tests.testing.broken import BROKEN, clean_up
from tests.testing.honest import Honest
from trueline.errors import ContractBroken, InputError
from trueline.testing import SimpleView, check, checks, findings

COMPONENTS = {**parts.OPERATORS, **parts.LOADERS, **parts.SAVERS, **parts.SPLITS}


pytestmark = pytest.mark.filterwarnings("ignore:a cell of")


@pytest.fixture(autouse=True)
def _closed():
    yield
    clean_up()


@pytest.fixture
def sample_file(tmp_path):
    path = tmp_path / "sample.csv"
    path.write_text("n,x,s\n" + "".join(f"{n},{n / 2},row {n}\n" for n in range(9)), encoding="utf-8")
    return path


def subject(name, sample_file):
    """What a fixture is checked on: a new view each time, for some keep state."""
    if name in BROKEN:
        return BROKEN[name](), None
    component = COMPONENTS[name]
    samples = {**dict.fromkeys(parts.LOADERS, sample_file), **dict.fromkeys(parts.SPLITS, tl.View.range(40))}
    return component, samples.get(name)


def marked(name):
    return pytest.param(name, marks=pytest.mark.contract(f"kit:{name.split('.')[0]}"))


def test_there_is_a_broken_view_for_every_check():
    assert {*BROKEN, *COMPONENTS} == set(checks())


@pytest.mark.parametrize("name", [marked(name) for name in checks()])
def test_a_broken_view_is_caught_by_the_check_it_was_made_for_and_by_no_other(name, sample_file):
    thing, sample = subject(name, sample_file)
    with pytest.raises(ContractBroken) as caught:
        check(thing, sample, patience=0.5)
    assert caught.value.check == name
    again, sample = subject(name, sample_file)
    report = check(again, sample, without=[name], patience=0.5)
    assert name not in report.held
    assert report.held


def test_an_honest_view_passes_every_check():
    report = check(Honest())
    assert set(report.held) | set(report.skipped) == set(checks("view"))
    assert set(report.skipped) == {"K13.ignored"}


@pytest.mark.parametrize("kind", list(parts.HONEST))
def test_honest_components_pass_every_check(kind, sample_file):
    samples = {"loader": sample_file, "split": tl.View.range(40)}
    report = check(parts.HONEST[kind], samples.get(kind))
    own = checks("operator" if kind == "cache" else kind)
    assert not {name for name in own if name in report.skipped and not name.startswith(("K6", "K19"))}


def test_the_error_names_the_check_the_contract_the_place_and_what_to_do():
    with pytest.raises(ContractBroken) as caught:
        check(BROKEN["K17.lengths"]())
    error = caught.value
    assert (error.check, error.contracts, error.column, error.row) == (
        "K17.lengths",
        ("view:C108",),
        "v",
        5,
    )
    assert "3 values in a vector(float64, 2)" in str(error)
    assert "→ declare the column without a size" in str(error)
    assert isinstance(error, AssertionError)
    assert pickle.loads(pickle.dumps(error)).check == "K17.lengths"


def test_an_error_of_the_view_is_told_as_what_it_is_with_its_cause():
    with pytest.raises(ContractBroken, match="raised RuntimeError: made in another thread") as caught:
        check(BROKEN["K3.threads"]())
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_all_that_is_broken_can_be_had_at_once():
    class Worse(BROKEN["K12.unique"]):
        row_count = 3

    assert [found.check for found in findings(Worse())] == ["K4.true", "K12.unique"]
    assert findings(Honest()) == []


def test_checks_are_chosen_by_name_or_number():
    assert check(Honest(), only=["K12"]).held == ["K12.ids", "K12.unique", "K12.getter", "K12.same_row"]
    assert check(Honest(), only=["K7.sticky", "K4"]).held == ["K4.true", "K4.stable", "K7.sticky"]
    assert "K7.sticky" not in check(Honest(), without=["K7"]).held
    with pytest.raises(InputError, match="no check 'K99'"):
        check(Honest(), only=["K99"])


def test_the_report_says_what_held_what_did_not_apply_and_what_was_noticed():
    report = check(tl.View.range(5))
    assert report.skipped["K13.differs"] == "fewer than 20 rows"
    assert "rows move by" in check(Honest()).notes["K13.differs"]
    assert "K13.differs: fewer than 20 rows" in str(report)


@pytest.mark.parametrize("thing", [3, None, "a view", object(), Honest])
def test_what_cannot_be_checked_is_refused(thing):
    with pytest.raises((InputError, ContractBroken, TypeError)):
        check(thing)


def test_a_function_is_an_operator_or_a_loader_by_its_sample(sample_file):
    assert "K6.rows" in check(lambda view: view.skip(1), tl.View.range(50)).held
    with pytest.warns(UserWarning, match="cannot be read"):
        assert "K18.cells" in check(parts.Lines, str(sample_file)).held
    with pytest.raises(InputError, match="is not a sample"):
        check(lambda view: view, [1])
    with pytest.raises(InputError, match="needs a sample"):
        check(parts.HONEST["loader"])


def test_a_view_without_an_end_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr("trueline.testing.read.MOST_ROWS", 1_000)

    class Endless(SimpleView):
        schema = tl.View.range(1).schema

        def rows(self, columns):
            while True:
                yield [1] * len(columns)

    with pytest.raises(ContractBroken, match="more than 1,000 rows"):
        check(Endless(), only=["K3.twice"])


def test_every_check_names_contracts_that_exist_and_says_what_it_looks_at():
    from tests.contracts.register import contracts

    for each in checks().values():
        assert each.contracts
        assert set(each.contracts) <= set(contracts())
        assert f"kit:{each.number}" in contracts()
        assert each.about.endswith(".")


def test_the_check_is_a_function_whatever_was_imported_before_it():
    code = "from trueline import testing; testing.Report; testing.checks(); assert callable(testing.check)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
