"""Remedies of run."""
