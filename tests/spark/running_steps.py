"""Steps that run in Spark tasks, and meet each other there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from trueline.run import Step


class Meets(Step):
    """Changes a value once the step after it has begun to work ahead on the old one."""

    name = "meets"

    def __init__(self, gate):
        super().__init__()
        self.gate = gate

    def map(self, key, value):
        with Path(self.gate).open("rb"):
            return value + "!"


class Stalls(Step):
    """Says that it has begun, then waits for ever, if the value is an old one."""

    name = "stalls"

    def __init__(self, gate, never):
        super().__init__()
        self.gate, self.never = gate, never

    def map(self, key, value):
        if not value.endswith("!"):
            with Path(self.gate).open("wb"):
                pass
            with Path(self.never).open("rb"):
                raise AssertionError("nobody opens this")
        return f"{value} done"


class AddOne(Step):
    """A step on tables."""

    name = "add one"

    def map(self, key, value):
        if key.endswith("same"):
            return value
        return value.set_column(0, "n", pc.add(value["n"], 1))


class Refuses(Step):
    """Fails on one key."""

    name = "refuses"

    def map(self, key, value):
        if key == "bad":
            raise ZeroDivisionError("by bad")
        return value


class ByValue(Step):
    """Hands rows on by value, which is not the way."""

    name = "by value"

    def map(self, key, value):
        return pa.table({"n": [1]})
