"""How records get into a dataset: intake, merge, slices, one commit."""
