"""Live collections, ticks and align points: programs that read changing state, and can be made to agree.

What is promised of a collection is part of its type, and can be asked for:

>>> issubclass(Bounded, Unbounded), issubclass(Ordered, Unordered), issubclass(ExactlyOnce, AtLeastOnce)
(True, True, True)

A test is run under every schedule the flow may meet, with faults if they are asked for:

>>> flow = Flow("echo")
>>> server = flow.process("server")
>>> server.sink("out", server.source("in").batch(server.tick(), nondet("any piece")).all_ticks())
>>> def test(sim):
...     assert isinstance(sim, Simulation)
...     sim.send("in", "a", "b")
...     sim.assert_yields("out", "a", "b")
...     sim.assert_no_more("out")
>>> found = flow.simulate(test)
>>> isinstance(found, Exploration), found.exhaustive
(True, True)
>>> flow.simulate(test, faults=[crash(), drift()])
Traceback (most recent call last):
trueline.errors.Counterexample: ...
"""

from __future__ import annotations

from trueline.errors import Counterexample
from trueline.flow.align_point import AlignPoint, Slice
from trueline.flow.flow import Flow
from trueline.flow.graph import Use
from trueline.flow.keyed import KeyedSingleton, KeyedStream
from trueline.flow.locations import Cluster, Process
from trueline.flow.machine import Machine
from trueline.flow.markers import (
    AtLeastOnce,
    Bounded,
    ExactlyOnce,
    NonDet,
    Ordered,
    Unbounded,
    Unordered,
    nondet,
)
from trueline.flow.simulator import Exploration, NotExhaustive, Simulation, crash, drift, redelivery
from trueline.flow.singletons import Optional, Singleton
from trueline.flow.streams import Stream
from trueline.flow.ticks import Handle, Tick

__all__ = [
    "AlignPoint",
    "AtLeastOnce",
    "Bounded",
    "Cluster",
    "Counterexample",
    "ExactlyOnce",
    "Exploration",
    "Flow",
    "Handle",
    "KeyedSingleton",
    "KeyedStream",
    "Machine",
    "NonDet",
    "NotExhaustive",
    "Optional",
    "Ordered",
    "Process",
    "Simulation",
    "Singleton",
    "Slice",
    "Stream",
    "Tick",
    "Unbounded",
    "Unordered",
    "Use",
    "crash",
    "drift",
    "nondet",
    "redelivery",
]
