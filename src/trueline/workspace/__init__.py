"""Workspaces and their datasets: what is appended to them, how they are read, and their proof.

A workspace holds datasets:

>>> import tempfile, pyarrow as pa, trueline as tl
>>> from trueline.workspace import Commit, Dataset, Info
>>> folder = tempfile.TemporaryDirectory()
>>> ws = tl.open(f"{folder.name}/shop", create=True)
>>> sales = ws.create("sales", merge=tl.merge.upsert("id"))

What is appended is a commit:

>>> commit = sales.append(pa.table({"id": [1, 2], "city": ["Bern", "Zug"]}))
>>> isinstance(commit, Commit), commit.rows, commit.offsets, commit.short == sales.head.short
(True, 2, range(0, 2), True)
>>> commit.summary, commit.told
('+2 rows, offsets 0 to 1', '+2 rows, offsets 0 to 1')
>>> commit.to_dict()["rows"], commit.bad_cells().count(), commit.bad_summary
(2, 0, '')

A dataset says what it is:

>>> isinstance(sales, Dataset), sales.kind, sales.inputs, str(sales.id)[:8], sales.workspace is ws
(True, 'root', (), 'did:odf:', True)
>>> sales.schema, sales.columns
(Schema(id: int64, city: text), ('id', 'city'))
>>> sales.system_schema.names
('offset', 'op', 'system_time', 'event_time', 'id', 'city')
>>> [(column.name, column.type, column.optional) for column in sales.stored_columns()]
[('id', 'Int64', True), ('city', 'String', True)]
>>> isinstance(sales.info, Info), sales.info.rows, sales.info.rows_shown, sales.info.to_dict()["merge"]
(True, 2, '2', "upsert('id')")
>>> sales.health().index, sales.origin is None
('up to date', True)

It is read as it is, or as it was:

>>> later = sales.append(pa.table({"id": [2], "city": ["Basel"]}))
>>> sales.view().to_arrow()["city"].to_pylist(), sales.view(at=commit).to_arrow()["city"].to_pylist()
(['Bern', 'Basel'], ['Bern', 'Zug'])
>>> sales.get(2), sales.get(2, at=commit)
({'id': 2, 'city': 'Basel'}, {'id': 2, 'city': 'Zug'})
>>> sales.changes(after=commit).to_arrow()["op"].to_pylist()
['update_preimage', 'update_postimage']
>>> sales.diff(commit).to_arrow().num_rows
2
>>> later.wait("sales").at["sales"] == later
True
>>> sales.export(f"{folder.name}/sales.csv").rows
2

Its past can be listed and proven:

>>> [each.rows for each in sales.log()], sales.commit(commit.short) == commit
([2, 2, 0], True)
>>> [block.event.KIND for _, block in sales.blocks()][:2]
['AddData', 'AddData']
>>> Commit.of("sales", [next(sales.blocks())]).offsets == later.offsets
True
>>> sales.verify(expected_head=later).ok
True
>>> sales.accept_head()
>>> sales.reset(to=later)
()
>>> sales.restore_head(later)

It can be copied, and records can be removed for good:

>>> sales.push(f"{folder.name}/copy").blocks == sales.info.blocks
True
>>> sales.drop_data(upto=commit, reason="the customer asked for it").rows
2
>>> declared = ws.create("declared", source=folder.name)
>>> folder.name in declared.confirm_source()
True
>>> ws.close()
>>> folder.cleanup()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trueline.lazy import lazily

if TYPE_CHECKING:
    from trueline.dataset.commit import Commit
    from trueline.flow import nondet
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.info import Info
    from trueline.workspace.tags import Tag
    from trueline.workspace.workspace import Workspace, open  # noqa: A004 (the promised name)

__all__ = ["Commit", "Dataset", "Info", "Tag", "Workspace", "nondet", "open"]

_LAZY = {
    "Commit": "trueline.dataset.commit",
    "Dataset": "trueline.workspace.dataset",
    "Info": "trueline.workspace.info",
    "Tag": "trueline.workspace.tags",
    "Workspace": "trueline.workspace.workspace",
    "nondet": "trueline.flow",
    "open": "trueline.workspace.workspace",
}

__getattr__, __dir__ = lazily(__name__, _LAZY)
