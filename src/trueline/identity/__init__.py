"""Who a row, a file and a dataset are: row ids, hashes, ids of datasets.

Importing this room loads nothing heavy: names that need numpy, pyarrow or
cryptography are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trueline.identity.dataset_id import DatasetId, DatasetKey
from trueline.identity.multihash import Multihash, physical_hash
from trueline.identity.rowid import RowId
from trueline.lazy import lazily

if TYPE_CHECKING:
    from trueline.identity.logical import LogicalHasher, logical_hash
    from trueline.identity.rowids import RowIds

__all__ = [
    "DatasetId",
    "DatasetKey",
    "LogicalHasher",
    "Multihash",
    "RowId",
    "RowIds",
    "logical_hash",
    "physical_hash",
]

_LAZY = {
    "LogicalHasher": "trueline.identity.logical",
    "RowIds": "trueline.identity.rowids",
    "logical_hash": "trueline.identity.logical",
}

__getattr__, __dir__ = lazily(__name__, _LAZY)
