"""The pytest plugin: fixtures that give a test every check of the kit, and views that are hard to get right.

It is loaded with pytest where Trueline is installed, and imports nothing before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trueline.testing import Report
    from trueline.view import View


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make the option known."""
    group = parser.getgroup("trueline")
    group.addoption(
        "--replay-flow",
        metavar="LINE",
        help="let `simulate` run one schedule: the line a failure printed",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers",
        "kit(kind): what `kit_check` checks: view (if there is no mark), operator, loader, saver or split",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each check, and for each hard view."""
    if "kit_check" in metafunc.fixturenames:
        from trueline.testing import checks

        mark = metafunc.definition.get_closest_marker("kit")
        kind = mark.args[0] if mark is not None and mark.args else "view"
        names = list(checks(kind))
        if not names:
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: there are no checks of kind {kind!r}")
        metafunc.parametrize("kit_check", names, indirect=True)
    if "hard_view" in metafunc.fixturenames:
        from trueline.testing import views

        metafunc.parametrize("hard_view", list(views()), indirect=True)


@pytest.fixture
def kit_check(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """One check of the kit: `kit_check(MyView())`; the test runs once for each.

    A check that does not apply is skipped, with its reason.
    """
    from trueline.testing import check

    def run(obj: Any, sample: Any = None, **options: Any) -> Report:
        report = check(obj, sample, only=[request.param], **options)
        if request.param in report.skipped:
            pytest.skip(report.skipped[request.param])
        return report

    return run


@pytest.fixture
def conforms() -> Callable[..., Report]:
    """All checks of the kit at once: `conforms(MyView())`."""
    from trueline.testing import check

    return check


@pytest.fixture
def hard_view(request: pytest.FixtureRequest) -> View:
    """A view that is hard to get right; the test runs once for each."""
    from trueline.testing import views

    return views()[request.param]


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Run a body under every schedule of a flow: `simulate(flow, body, mode="deviations")`.

    A search that was to be exhaustive and had to stop early fails the test; `--replay-flow LINE` runs one
    schedule. What was explored goes into the report of the test.
    """
    line = request.config.getoption("--replay-flow")

    def run(flow: Any, body: Callable[..., object], mode: str = "exhaustive", **options: Any) -> Any:
        if line is not None:
            options["replay"] = line
        explored = flow.simulate(body, mode, **options)
        request.node.user_properties.append(("trueline flow", str(explored)))
        if mode == "exhaustive" and "replay" not in options and not explored.exhaustive:
            pytest.fail(f"{explored}: allow more executions, or use mode='deviations'")
        return explored

    return run
