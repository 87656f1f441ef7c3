"""Benchmarks: ours beside the peers, in one run, as a table. Run `python -m bench`."""
