"""The way of records into a dataset: pieces, slices, one commit."""
