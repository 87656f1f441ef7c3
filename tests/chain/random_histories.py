"""Random valid histories, made by a model of a dataset that knows nothing of the code it tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.chain.histories import (
    SYSTEM_COLUMNS,
    History,
    checkpoint,
    data_slice,
    dataset_id,
    digest,
    moment,
    polling_source,
    push_source,
    set_data_schema,
    set_transform,
    source_state,
    sql,
)
from trueline.chain import Chain

TYPES: list[Any] = [
    "String",
    "Int64",
    {"kind": "Decimal", "precision": 9, "scale": 2},
    {"kind": "List", "itemType": "String"},
]


@dataclass
class Model:
    """What a dataset is known to hold; says which events may come next."""

    random: Random
    history: History
    prev: int | None = None
    watermark: float | None = None
    checkpoint: str | None = None
    state: str | None = None
    columns: list[dict[str, Any]] | None = None
    polling: str | None = None
    push: dict[str, str] = field(default_factory=dict)
    inputs: list[tuple[object, Model]] = field(default_factory=list)
    taken: dict[object, tuple[str | None, int | None]] = field(default_factory=dict)
    redefined: bool = True
    counter: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    positions: list[tuple[str, int | None]] = field(default_factory=list)

    # --- the next event -------------------------------------------------------

    def next_event(self) -> Callable[[], dict[str, Any]]:
        choices: list[Callable[[], dict[str, Any]]] = [self.annotate, self.schema]
        if self.inputs:
            choices += [self.step] * 6 + [self.transform]
        else:
            choices += [self.data] * 6 + [self.sources] * 2
        return self.random.choice(choices)

    def advance(self) -> None:
        """Append one valid event and remember where the dataset stands."""
        made = self.next_event()()
        self.events.append(made)
        self.history.append(made)
        self.positions.append((str(self.history.head), self.prev))

    def label(self, what: str) -> str:
        self.counter += 1
        return f"{what} {self.counter}"

    def annotate(self) -> dict[str, Any]:
        return self.random.choice(
            [
                {"kind": "SetInfo", "description": self.label("about"), "keywords": ["a", "ü"]},
                {
                    "kind": "SetLicense",
                    "shortName": "CC",
                    "name": "CC-BY",
                    "websiteUrl": "https://example.org",
                },
                {
                    "kind": "SetAttachments",
                    "attachments": {"kind": "Embedded", "items": [{"path": "README.md", "content": "hello"}]},
                },
            ]
        )

    def schema(self) -> dict[str, Any]:
        if self.columns is None:
            self.columns = [*SYSTEM_COLUMNS, {"name": "first", "type": self.random.choice(TYPES)}]
        else:
            change = self.random.randrange(3)
            if change == 0:
                kind = {"kind": "Option", "inner": self.random.choice(TYPES)}
                self.columns = [*self.columns, {"name": self.label("column"), "type": kind}]
            elif change == 1:
                first = {**self.columns[0], "extra": {"example.org/note": self.label("note")}}
                self.columns = [first, *self.columns[1:]]
            else:
                self.columns = [*self.columns[1:], self.columns[0]]
        return set_data_schema(system=self.columns)

    def sources(self) -> dict[str, Any]:
        if self.polling is not None:
            if self.random.random() < 0.5:
                self.polling = None
                return {"kind": "DisablePollingSource"}
            self.polling = self.label("url")
            return polling_source(self.polling)
        if self.push and self.random.random() < 0.5:
            name = self.random.choice(sorted(self.push))
            del self.push[name]
            return {"kind": "DisablePushSource", "sourceName": name}
        if not self.push and self.random.random() < 0.5:
            self.polling = self.label("url")
            return polling_source(self.polling, preprocess=sql({"alias": "a", "query": "b"}, {"query": "c"}))
        name = self.random.choice(["default", "other", "third"])
        self.push[name] = self.label("separator")
        return push_source(name, read={"kind": "Csv", "separator": self.push[name]})

    def transform(self) -> dict[str, Any]:
        """Another query, or the same inputs in another order."""
        self.redefined = True
        self.random.shuffle(self.inputs)
        return set_transform(
            *(label for label, _ in self.inputs), transform=sql({"query": self.label("select")})
        )

    def data(self) -> dict[str, Any]:
        made, moved = self._carried("AddData")
        if not moved or self.random.random() < 0.3:
            self.state = self.label("etag")
        if self.state is not None:
            made["newSourceState"] = source_state(self.state)
        if self.random.random() < 0.2:
            made["extra"] = {"example.org/rows": self.random.randrange(1 << 60), "example.org/ok": True}
        return made

    def step(self) -> dict[str, Any]:
        taken, advanced = [], False
        for label, source in self.inputs:
            last_block, last_offset = self.taken.get(label, (None, None))
            entry: dict[str, Any] = {"datasetId": str(dataset_id(label))}
            if last_block is not None:
                entry["prevBlockHash"] = last_block
            if last_offset is not None:
                entry["prevOffset"] = last_offset
            ahead = self._ahead(source, last_block)
            if ahead and self.random.random() < 0.6:
                block, offset = self.random.choice(ahead)
                entry["newBlockHash"], advanced = block, True
                if offset != last_offset:
                    entry["newOffset"] = offset
                self.taken[label] = (block, offset)
            taken.append(entry)
        rebuilds = self.redefined and any(block is not None for block, _ in self.taken.values())
        made, moved = self._carried("ExecuteTransform", rows=advanced or rebuilds)
        if "newData" in made and not advanced:
            self.checkpoint = self.label("checkpoint")
            made["newCheckpoint"] = checkpoint(self.checkpoint)
        self.redefined = False
        if not moved and not (advanced and (self.checkpoint or self.watermark is not None)):
            self.checkpoint = self.label("checkpoint")
            made["newCheckpoint"] = checkpoint(self.checkpoint)
        made["queryInputs"] = taken
        return made

    @staticmethod
    def _ahead(source: Model, after: str | None) -> list[tuple[str, int | None]]:
        blocks = [block for block, _ in source.positions]
        return source.positions[blocks.index(after) + 1 if after is not None else 0 :]

    def _carried(self, kind: str, *, rows: bool = True) -> tuple[dict[str, Any], bool]:
        """What every data event carries, with some of it moved on; `rows`: it may have records."""
        made: dict[str, Any] = {"kind": kind}
        moved = False
        if self.prev is not None:
            made["prevOffset"] = self.prev
        if self.checkpoint is not None:
            made["prevCheckpoint"] = digest(self.checkpoint)
        if rows and self.columns is not None and self.random.random() < 0.6:
            start = 0 if self.prev is None else self.prev + 1
            end = start + self.random.choice([0, 1, 9, 1 << 40])
            made["newData"], self.prev, moved = data_slice(start, end), end, True
        if self.random.random() < 0.4:
            gap = self.random.choice([0.001, 5])
            self.watermark, moved = (self.watermark or 0.0) + gap, True
        if self.random.random() < 0.3:
            self.checkpoint, moved = self.label("checkpoint"), True
        if self.watermark is not None:
            made["newWatermark"] = moment(self.watermark)
        if self.checkpoint is not None:
            made["newCheckpoint"] = checkpoint(self.checkpoint)
        return made, moved


def random_root(random: Random, events: int, label: object = "this") -> Model:
    """A root dataset of so many events."""
    model = Model(random, History(label=label))
    model.positions.append((str(model.history.head), None))
    for _ in range(events):
        model.advance()
    return model


def random_derivative(random: Random, events: int, inputs: int) -> Model:
    """A derived dataset over inputs that grow while it follows them."""
    sources = [(f"input {number}", random_root(random, 3, f"input {number}")) for number in range(inputs)]
    chains: dict[Any, Chain] = {dataset_id(label): source.history.chain for label, source in sources}
    model = Model(random, History("Derivative", inputs=chains), inputs=list(sources))
    model.positions.append((str(model.history.head), None))
    model.history.append(set_transform(*(label for label, _ in sources)))
    model.positions.append((str(model.history.head), None))
    for _ in range(events):
        for _, source in sources:
            for _ in range(random.randrange(3)):
                source.advance()
        model.advance()
    return model
