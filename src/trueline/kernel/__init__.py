"""Work on arrays and rows; it imports nothing of the rooms above it."""
