"""Transfer: whole datasets between folders, object stores and static file servers, byte for byte.

`cloning` has `clone` and `update`, `pushing` has `push`. Nothing is imported
here: opening a workspace needs only `origin`.
"""
