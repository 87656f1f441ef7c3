"""Remedies of view."""
