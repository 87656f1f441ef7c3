"""Remedies of flow."""
