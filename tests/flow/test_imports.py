"""Modules of flows and of runs know each other in one direction; the core of nodes knows no one."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture import imports, module_name, source_files

# Collections return each other: `key_by` makes a keyed stream of a stream, `entries` a stream of that. Their
# modules name each other's classes for the type checker; nothing is imported when they are loaded.
RETURN_EACH_OTHER = {
    "trueline.flow.keyed": {"trueline.flow.singletons", "trueline.flow.streams"},
    "trueline.flow.singletons": {"trueline.flow.streams"},
    "trueline.flow.streams": {"trueline.flow.keyed", "trueline.flow.singletons"},
}


def known_modules(room: str) -> dict[str, set[str]]:
    """The modules of a room and which of them each imports: at the top, in functions, for types only."""
    paths = {module_name(path): path for path in source_files()}
    inside = {name for name in paths if name.startswith(f"trueline.{room}.")}
    packages = {name for name in inside if paths[name].name == "__init__.py"}
    found = {}
    for name in sorted(inside):
        text = paths[name].read_text(encoding="utf-8")
        targets = {each.target for each in imports(name, text, is_package=name in packages)}
        known = {t if t in inside else t.rpartition(".")[0] for t in targets}
        # A package imports its modules to show their names; a module of it that names the package does not.
        found[name] = (known & inside) - {name} - {p for p in packages if name.startswith(f"{p}.")}
    return found


@pytest.mark.parametrize(("room", "exceptions"), [("flow", RETURN_EACH_OTHER), ("run", {})])
def test_no_module_imports_itself_by_way_of_others(room, exceptions):
    graph = {name: known - exceptions.get(name, set()) for name, known in known_modules(room).items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_every_exception_is_still_needed():
    found = known_modules("flow")
    assert {name: found[name] & others for name, others in RETURN_EACH_OTHER.items()} == RETURN_EACH_OTHER


def test_the_core_of_nodes_imports_no_other_module_of_flow_but_the_markers():
    found = known_modules("flow")
    assert found["trueline.flow.graph"] == {"trueline.flow.markers"}
    assert found["trueline.flow.markers"] == set()
