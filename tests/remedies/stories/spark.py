"""Remedies of spark."""
