"""YAML as manifests use it: no aliases, no tags, no dates, no repeated keys, bounded."""

from __future__ import annotations

import re
from typing import Any

from trueline.errors import ManifestError

MAX_TEXT_BYTES = 16 << 20
MAX_DEPTH = 100
# Reading takes 25 µs a value: without this bound 16 MB of short list items would take two minutes.
MAX_VALUES = 100_000
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
_NUMBER_STARTS = list("-+0123456789")
_PLAIN = (
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]{0,40})$"), _NUMBER_STARTS),
    (
        "tag:yaml.org,2002:float",
        re.compile(
            r"^[-+]?(?:0|[1-9][0-9]{0,40})(?:\.[0-9]{0,40}(?:[eE][-+]?[0-9]{1,3})?|[eE][-+]?[0-9]{1,3})$"
        ),
        _NUMBER_STARTS,
    ),
)
"""What is read as something else than text: a number with leading zeros, a date, `yes` are not."""


def load(text: str | bytes) -> Any:
    r"""Read one YAML (or JSON) document; anything but plain data raises `ManifestError` with its line.

    >>> load("kind: Seed\nat: 2020-01-01T00:00:00Z")
    {'kind': 'Seed', 'at': '2020-01-01T00:00:00Z'}
    """
    documents = load_all(text)
    if len(documents) != 1:
        raise ManifestError(
            f"{len(documents)} documents where one is expected", remedy="split the file at ---"
        )
    return documents[0]


def load_all(text: str | bytes) -> list[Any]:
    """Read every document of a file."""
    import yaml

    if len(text) > MAX_TEXT_BYTES:
        raise ManifestError(
            f"a manifest of {len(text):,} bytes is too large", remedy="keep data out of manifests"
        )
    try:
        loader = _loader()(text)
        try:
            documents = []
            while loader.check_data():
                documents.append(loader.get_data())
            return documents
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ManifestError(f"{where}{problem}", remedy="correct the YAML there") from None
    except (RecursionError, UnicodeDecodeError, ValueError) as error:
        raise ManifestError(f"not YAML: {type(error).__name__}: {error}", remedy="correct the file") from None


def dump(value: Any) -> str:
    """Write plain data in the canonical form: keys in the given order, no wrapping."""
    import yaml

    text: str = yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=1 << 20)
    return text


def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes every text that the loader here, or one of YAML 1.1, would read as something else."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text_node(dumper: Any, text: str) -> Any:
        # Line ends of Unicode are escaped in double quotes only; in others they are read as spaces.
        style = '"' if _LINE_ENDS.search(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, text_node)
    for tag, pattern, first in _PLAIN:
        Dumper.add_implicit_resolver(tag, pattern, first)
    return Dumper


def _loader() -> Any:
    import yaml

    class PlainLoader(yaml.SafeLoader):
        """Plain data only."""

        depth = 0
        values = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.composer.ComposerError(None, None, "aliases are not allowed", self._mark())
            if getattr(self.peek_event(), "tag", None) is not None:  # type: ignore[no-untyped-call]
                raise yaml.composer.ComposerError(None, None, "tags are not allowed", self._mark())
            self.depth += 1
            self.values += 1
            if self.values > MAX_VALUES:
                problem = f"more than {MAX_VALUES:,} values"
                raise yaml.composer.ComposerError(None, None, problem, self._mark())
            if self.depth > MAX_DEPTH:
                problem = f"nested deeper than {MAX_DEPTH} levels"
                raise yaml.composer.ComposerError(None, None, problem, self._mark())
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

        def _mark(self) -> Any:
            return self.peek_event().start_mark  # type: ignore[no-untyped-call]

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, str | int | float | bool | None):
                    raise yaml.constructor.ConstructorError(
                        None, None, "a key is not a plain scalar", key_node.start_mark
                    )
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} occurs twice", key_node.start_mark
                    )
                seen.add(key)
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            return mapping

        def flatten_mapping(self, node: Any) -> None:
            """Merge keys are an alias mechanism; leave `<<` as it is."""

    PlainLoader.yaml_implicit_resolvers = {}
    for tag, pattern, first in _PLAIN:
        PlainLoader.add_implicit_resolver(tag, pattern, first)
    return PlainLoader
