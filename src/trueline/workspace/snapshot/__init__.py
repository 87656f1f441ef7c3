"""Snapshots: several datasets read at one state of the world.

`search` finds where they agree, `snapshot` is what people read, `wait` says when a write is visible.
"""
