"""Reading a view row by row: rows, cursors, and sets of them read as one."""
