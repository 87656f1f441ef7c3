"""The checks, by what they look at; importing this registers them all, in the order they run."""

from trueline.testing.suite import (  # noqa: I001 (the order in which they run)
    schema as schema,
    repeat as repeat,
    columns as columns,
    move as move,
    sets as sets,
    identity as identity,
    shuffle as shuffle,
    vectors as vectors,
    close as close,
    ownership as ownership,
    operators as operators,
    loaders as loaders,
    savers as savers,
    splits as splits,
)
