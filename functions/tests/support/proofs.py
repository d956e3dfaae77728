"""A store with alerts of both surveys in several nights, and their proofs."""

from collections.abc import Sequence
from pathlib import Path

from stampede.config.settings import Settings
from stampede.proofs.night_proof import NightProof
from stampede.proofs.prover import Prover
from stampede.proofs.signatures import SigningKey, make_key
from stampede.store.objects.object_store import Objects
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Mix, Simulator

KEY = SigningKey(make_key(), "key")


def alerts(count: int, seed: int = 3) -> list[SimulatedAlert]:
    """Whole alerts, each once."""
    return [*Simulator(seed, mix=Mix(corrupt=0, duplicates=0)).alerts(count)]


def settings_in(directory: Path) -> Settings:
    """Settings of a store in a directory."""
    return Settings(store=f"file://{directory}/store", spool=directory, refresh_seconds=0)


def prove(objects: Objects, key: SigningKey | None = KEY) -> list[NightProof]:
    """Make what is due."""
    return [*Prover(objects, key, 1.0, None).make_pass(everything=True)]


def find_losses(objects: Objects, packet_days: int | None = None) -> list[NightProof]:
    """Revisions of what is lost or back."""
    return [*Prover(objects, KEY, 1.0, packet_days).find_losses()]


def bodies(some: Sequence[SimulatedAlert]) -> list[bytes]:
    """The messages."""
    return [each.body for each in some]
