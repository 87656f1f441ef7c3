"""What views do to each other, one operator each: columns, rows, ids and order are stated with it."""
