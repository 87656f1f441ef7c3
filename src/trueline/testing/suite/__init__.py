"""The checks, by what they look at; importing this registers them all, in the order they run."""

from trueline.testing.suite import close as close
from trueline.testing.suite import columns as columns
from trueline.testing.suite import identity as identity
from trueline.testing.suite import loaders as loaders
from trueline.testing.suite import move as move
from trueline.testing.suite import operators as operators
from trueline.testing.suite import ownership as ownership
from trueline.testing.suite import repeat as repeat
from trueline.testing.suite import savers as savers
from trueline.testing.suite import schema as schema
from trueline.testing.suite import sets as sets
from trueline.testing.suite import shuffle as shuffle
from trueline.testing.suite import splits as splits
from trueline.testing.suite import vectors as vectors
