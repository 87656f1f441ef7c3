"""Remedies of readers."""
