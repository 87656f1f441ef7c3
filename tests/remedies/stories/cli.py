"""Remedies of cli."""
