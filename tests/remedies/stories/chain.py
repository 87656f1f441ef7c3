"""Remedies of blocks, of the places where they are kept, and of identities."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest

from tests.chain.broken_rules import INFO
from tests.chain.broken_rules import STORIES as BROKEN
from tests.chain.histories import set_transform
from tests.chain.test_rules import end, following, part, ten_records
from tests.remedies.story import Scene, done, keywords, piece, story
from trueline.chain.instant import Instant
from trueline.chain.store.file import FileStore
from trueline.chain.store.files import refusal
from trueline.chain.store.object_client import connect
from trueline.chain.store.open import open_store
from trueline.chain.store.options import nested, with_retries
from trueline.errors import ChainError
from trueline.flow import Flow, nondet
from trueline.identity.dataset_id import DatasetId


@story(
    "chain.rule",
    "set prevBlockHash to the head, or begin the chain with a Seed",
    "start the slice at {expected}: prevOffset is {event.prev_offset}",
    "end it between its start and {MAX_OFFSET}; a transaction without records has no newData",
    "plan from block {step.tail.head}: prevOffset is {last}",
    "leave prevOffset out and start at offset 0",
    "append a SetDataSchema first, in the same commit",
    "append it together with the ExecuteTransform that takes the blocks of the inputs",
    "carry newSourceState unchanged",
    "repeat the checkpoint in newCheckpoint",
)
@story(
    "chain.rules",
    "keep read.schema",
    "append DisablePollingSource first",
    "append DisablePushSource for each first",
    "write the did:odf: id of the dataset and the name the queries use",
    "leave newBlockHash out when there is no new block",
    "leave newOffset out when there is no new record",
    "set newBlockHash to the block the records end at",
    "set newBlockHash of the inputs the records were computed from",
    "set newBlockHash of the inputs the records come from, or append SetTransform before a rebuild",
)
@story("chain.schema", "add it, or use SetVocab")
def blocks_that_break_a_rule(scene: Scene) -> None:
    """What is refused, and the same event as the remedy wants it, are kept side by side for each rule."""
    for each in BROKEN:
        broken = each.tell()
        history = broken.history
        try:
            history.chain.append(history.block(broken.bad, **broken.bad_header))
        except ChainError as error:
            if any(one.pattern.fullmatch(error.remedy) for one in scene.expected):
                scene.meet(error.remedy)
        except Exception:  # noqa: BLE001 (of a kind that this story is not about)
            continue
        assert history.append(broken.good).findings == ()


@story(
    "chain.rule",
    "end the commit first: take a block of an input, or leave a new checkpoint after a SetTransform",
    "append it together with the ExecuteTransform that takes the blocks of the inputs",
)
def a_commit_of_parts_that_does_not_end(scene: Scene) -> None:
    moved = end(20, new_block="a2", new_offset=19)
    history = ten_records()
    scene.refused(lambda: history.chain.append(*following(history, part(10), INFO, moved)))
    assert history.chain.append(*following(history, part(10), moved, INFO)).findings == ()
    history = ten_records()
    rebuilt = (set_transform("a"), part(10), end(20), INFO)
    assert history.chain.append(*following(history, *rebuilt)).findings == ()
    history = ten_records()
    scene.refused(lambda: history.chain.append(*following(history, part(10))))
    assert history.chain.append(*following(history, part(10), moved)).findings == ()


@story("chain.instant", "pass an aware datetime, e.g. with tzinfo=UTC", "write it like 2026-11-13T09:30:00Z")
def times_without_a_zone(scene: Scene) -> None:
    from datetime import UTC

    moment = datetime(2026, 11, 13)
    remedy = scene.refused(lambda: Instant.of(moment))
    assert Instant.of(moment.replace(**keywords(remedy, r"(tzinfo=UTC)", UTC=UTC))) is not None
    remedy = scene.refused(lambda: Instant.parse("yesterday"))
    assert Instant.parse(piece(remedy, r"like (\S+)")) is not None


@story("chain.store.files", "look at it with `ls -l`; replace it with what it points to, or remove it")
def a_link_in_the_place_of_a_file(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    trades.append([{"id": 1}])
    head = scene.home / "datasets" / "trades" / "refs" / "head"
    kept = head.rename(scene.folder / "kept")
    head.symlink_to(kept)
    remedy = scene.refused(lambda: trades.append([{"id": 2}]))
    words = piece(remedy, "`(.*)`").split()
    shown = subprocess.run([*words, str(head)], capture_output=True, text=True, check=True).stdout
    assert str(kept) in shown
    head.unlink()
    kept.rename(head)
    assert trades.append([{"id": 2}]).rows == 1


@story(
    "chain.store.files",
    "free some space there (`trueline gc` removes what nothing refers to), then try again",
    "close some datasets, or raise the limit of open files (ulimit -n)",
)
@story("workspace.doctor", "free some space; `trueline gc` removes what nothing refers to")
def a_disk_that_is_full(scene: Scene) -> None:
    from trueline.workspace import doctor

    trades = scene.ws.create("trades")

    def fail(number: int) -> Any:
        raise refusal(OSError(number, os.strerror(number)), "write", str(scene.home))

    remedy = scene.refused(lambda: fail(errno.ENOSPC))
    scene.typed(remedy)
    assert trades.append([{"id": 1}]).rows == 1
    remedy = scene.refused(lambda: fail(errno.EMFILE))
    shell = subprocess.run(["sh", "-c", piece(remedy, r"ulimit -n")], capture_output=True, text=True)
    assert int(shell.stdout) > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "_GIB", 1 << 80)
        (found,) = doctor._disk(scene.home)
    scene.typed(scene.meet(found.remedy))


@story("chain.store.object_client", "use FileStore, or open_store, which chooses")
@story("chain.store.options", "give options of the provider, such as endpoint or client_options.allow_http")
@story("chain.store.options", "give retry_config.retry_timeout")
def an_object_store_that_is_not_one(scene: Scene) -> None:
    url = f"file://{scene.folder}/store"
    remedy = scene.refused(lambda: connect(url, {}))
    found = done(f"{piece(remedy, 'open_store')}(url)", open_store=open_store, url=url)
    assert type(found).__name__ == piece(remedy, "FileStore") == FileStore.__name__
    remedy = scene.refused(lambda: nested([("client_options.", "x")]))
    names = [piece(remedy, r"as (\w+) or"), piece(remedy, r"or (\S+)")]
    assert nested([(name, "x") for name in names]) == {"endpoint": "x", "client_options": {"allow_http": "x"}}
    remedy = scene.refused(lambda: with_retries({"retry_config": "2m"}))
    given = nested([(piece(remedy, r"give (\S+)"), "2m")])
    assert with_retries(given)["retry_config"]["retry_timeout"].total_seconds() == 120


@story("identity.dataset_id", "give did:odf:fed01 followed by 64 hex digits, or did:key:z6Mk…")
def an_id_that_is_not_one(scene: Scene) -> None:
    remedy = scene.refused(lambda: DatasetId("did:web:x"))
    known = scene.ws.create("a").id
    assert str(known).startswith(piece(remedy, r"did:odf:fed01"))
    assert DatasetId(piece(remedy, r"did:odf:fed01") + "0" * 64)
    assert DatasetId(str(known)) == known


@story("flow.simulator.search", "pip install hypothesis, or use mode='deviations'")
def a_search_without_hypothesis(scene: Scene) -> None:
    flow = Flow("f")
    p = flow.process("p")
    p.sink("out", p.source("in").batch(p.tick(), nondet("any")).all_ticks())

    def body(sim: Any) -> None:
        sim.send("in", 1)
        sim.quiesce()

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "hypothesis", None)
        remedy = scene.refused(lambda: flow.simulate(body, mode="fuzz"))
        assert flow.simulate(body, **keywords(remedy, r"(mode='\w+')")) is not None
