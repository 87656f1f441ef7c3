"""Where the objects and the head of a dataset are kept: in memory, in a folder, in an object store."""
