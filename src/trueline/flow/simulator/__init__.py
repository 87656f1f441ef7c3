"""The simulator: every schedule a flow may run under, and the plainest one that breaks a test."""

from __future__ import annotations

from trueline.flow.simulator.faults import crash, drift, redelivery
from trueline.flow.simulator.script import ScriptedOperator
from trueline.flow.simulator.search import Exploration, NotExhaustive
from trueline.flow.simulator.simulate import simulate
from trueline.flow.simulator.simulation import Simulation
from trueline.flow.simulator.trace import Trace

__all__ = [
    "Exploration",
    "NotExhaustive",
    "ScriptedOperator",
    "Simulation",
    "Trace",
    "crash",
    "drift",
    "redelivery",
    "simulate",
]
