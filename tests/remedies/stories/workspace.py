"""Remedies of workspace."""
