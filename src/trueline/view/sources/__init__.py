"""Where the rows of views come from."""
