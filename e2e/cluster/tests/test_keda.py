"""KEDA: which of its scalers are built, and how its manifests are changed."""

from pathlib import Path

from e2e.cluster.built import keda

BUILDER = """\
	switch triggerType {
	case "activemq":
		return scalers.NewActiveMQScaler(config)
	case "kafka":
		return scalers.NewKafkaScaler(ctx, config)
	case "temporal":
		if x {
			return scalers.NewTemporalScaler(config)
		}
	default:
		return nil
	}
"""


def test_only_the_scaler_of_kafka_is_built(place: Path) -> None:
    (place / "pkg" / "scalers").mkdir(parents=True)
    (place / "pkg" / "scaling").mkdir()
    for name in ("scaler.go", "kafka_scaler.go", "activemq_scaler.go", "kafka_scaler_test.go"):
        (place / "pkg" / "scalers" / name).touch()
    builder = place / "pkg" / "scaling" / "scalers_builder.go"
    builder.write_text(BUILDER)
    keda.leave_out_scalers(place)
    kept = {file.name for file in (place / "pkg" / "scalers").iterdir()}
    assert kept == {"scaler.go", "kafka_scaler.go"}
    assert builder.read_text().split("\n")[1:5] == [
        '\tcase "kafka":',
        "\t\treturn scalers.NewKafkaScaler(ctx, config)",
        "\tdefault:",
        "\t\treturn nil",
    ]


def test_the_manifests_name_the_images_that_are_built() -> None:
    """And no webhooks, which nothing here serves."""

    class Kubectl:
        applied = ""

        def __call__(self, *words: object, stdin: str = "") -> str:
            self.applied += f"\n---\n{stdin}"
            return MANIFESTS if words[0] == "kustomize" else ""

    kubectl = Kubectl()
    keda.install(kubectl)  # type: ignore[arg-type]
    assert "dev.local/keda-operator:v2" in kubectl.applied
    assert "--enable-webhook-patching=false" in kubectl.applied
    assert "ghcr.io" not in kubectl.applied
    assert "admission" not in kubectl.applied


MANIFESTS = """\
{kind: Namespace, metadata: {name: keda}}
---
{kind: ValidatingWebhookConfiguration, metadata: {name: keda-admission}}
---
kind: Deployment
metadata: {name: keda-operator}
spec:
  template:
    spec:
      containers:
      - {image: "ghcr.io/kedacore/keda:main", command: [/keda], args: [--leader-elect]}
"""
