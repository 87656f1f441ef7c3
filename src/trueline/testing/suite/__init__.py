"""The checks, by what they look at; importing this registers them all, in the order they run."""

from trueline.testing.suite import (  # noqa: I001 (the order in which they run)
    schema as schema,
    repeating as repeating,
    columns as columns,
    moving as moving,
    sets as sets,
    identity as identity,
    shuffling as shuffling,
    vectors as vectors,
    closing as closing,
    owning as owning,
    operators as operators,
    loaders as loaders,
    savers as savers,
    splits as splits,
)
