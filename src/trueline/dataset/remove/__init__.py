"""Removal: bytes go on purpose; hashes, counts and the reason stay in the chain."""
