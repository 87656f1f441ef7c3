"""Derived datasets: what defines them, how they follow their inputs, and their proof by replay."""
