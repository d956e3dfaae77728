"""The step of a pass that makes the proofs of nights."""

from stampede.config.settings import Settings
from stampede.proofs.prover import Prover
from stampede.proofs.signatures import SigningKey
from stampede.store.objects.object_store import Objects
from stampede.telemetry import reconcile_metrics


def make_proofs(objects: Objects, settings: Settings, repair: bool, everything: bool) -> None:
    """Make the proofs that are due; none without `repair`.

    Raises `SetupError` if the key cannot be read, `StoreDown`, and `Damaged` if a proof is damaged:
    then its night has no new one.
    """
    if not repair or settings.proof_days is None:
        return
    key = SigningKey.read(settings.proof_key)
    prover = Prover(objects, key, settings.proof_days, settings.packet_days)
    for proof in prover.make_pass(everything):
        reconcile_metrics.PROOFS.labels(proof.survey).inc()
