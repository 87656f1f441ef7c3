"""Cuts: numbered, recorded positions of the roots of a workspace, and what holds them back.

`cut` is the value, `log` records it, `transaction` keeps it from falling between several appends, `roots`
says which datasets it is made of and where they are.
"""
