"""What a view does: immutable nodes that know columns and meaning, and nothing of how they are run."""
