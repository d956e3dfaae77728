import pytest


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_ingest_counts_every_alert_and_every_process(measure) -> None:
    found = measure("ingest")
    for subject in {subject for subject, _ in found}:
        assert found[subject, "stored in both tables"].value > 0
        assert found[subject, "requests for packs"].value > 0
        assert found[subject, "stored in packs"].value > 10_000
        cpu = {
            name: figure.value
            for (of, name), figure in found.items()
            if of == subject and name.startswith("CPU of")
        }
        assert cpu.pop("CPU of all") == pytest.approx(sum(cpu.values()))
        assert found[subject, "CPU of alerts workers"].value > 0
