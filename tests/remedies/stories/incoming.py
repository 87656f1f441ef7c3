"""Remedies of what comes in."""
