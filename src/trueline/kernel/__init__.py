"""What touches arrays and rows, and knows nobody above it."""
