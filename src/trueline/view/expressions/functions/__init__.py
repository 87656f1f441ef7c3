"""The functions of the language, by the kind of value they take."""

from trueline.view.expressions.functions.registry import ALIASES, functions

__all__ = ["ALIASES", "functions"]
