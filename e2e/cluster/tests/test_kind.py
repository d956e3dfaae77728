"""The kind cluster."""

from e2e.cluster.kind import Kind
from e2e.cluster.places import INGRESS_PORT, ROOT

CONFIG = ROOT / "e2e" / "kind.yaml"


def test_the_ingress_port_is_mapped_to_this_machine() -> None:
    ports = f"containerPort: {INGRESS_PORT}\n        hostPort: {INGRESS_PORT}\n"
    assert ports in CONFIG.read_text()
    assert Kind.ingress.endswith(f":{INGRESS_PORT}")
