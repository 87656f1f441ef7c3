"""Attacks: each succeeded once, and is refused now."""
