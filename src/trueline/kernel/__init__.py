"""What touches arrays and rows: chunks, pieces, hashes, order, aggregates, spilling."""
