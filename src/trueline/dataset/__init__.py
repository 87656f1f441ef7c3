"""Functions over one chain: what defines a dataset, how rows come in, are read, removed and verified."""
