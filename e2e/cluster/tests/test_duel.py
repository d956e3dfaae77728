"""What the duel counts as whose cost."""

from e2e.commands import CommandResult
from e2e.duel.__main__ import group_of
from e2e.duel.usage import Usage

LOOKS = [
    {("stampede", "stampede-cutouts-1-deployment-a", "cutouts"): 5.0},
    {
        ("stampede", "stampede-cutouts-1-deployment-a", "cutouts"): 6.0,
        ("stampede", "stampede-cutouts-1-deployment-b", "cutouts"): 2.0,
        ("stampede", "stampede-cutouts-1-deployment-b", "queue-proxy"): 0.5,
        ("keda", "keda-operator-c", "keda-operator"): 1.0,
        ("site", "ceph-0", "osd"): 9.0,
    },
    {("stampede", "stampede-cutouts-1-deployment-a", "cutouts"): 7.5},  # the other pod has ended
]


def shown(look: dict[tuple[str, str, str], float]) -> str:
    """As a kubelet shows it."""
    return "\n".join(
        f'container_cpu_usage_seconds_total{{container="{container}",namespace="{namespace}",'
        f'pod="{pod}"}} {value:e} 1764000000000'
        for (namespace, pod, container), value in look.items()
    )


class Cluster:
    looks = iter(LOOKS)

    def get(self, *_: str) -> list[dict]:
        return [{"metadata": {"name": "node"}}]

    def kubectl(self, *_: object, **__: object) -> CommandResult:
        return CommandResult([], 0, shown(next(self.looks)))


def test_a_container_costs_what_it_used_since_the_beginning() -> None:
    usage = Usage(Cluster(), group_of)  # type: ignore[arg-type]
    usage._look(0.0, new_is_old=True)
    for seconds in (2.0, 3.0):
        usage._look(seconds)
    assert usage.cpu() == {
        ("functions", "cutouts"): 7.5 - 5.0 + 2.0,
        ("functions", "queue-proxy"): 0.5,
        ("KEDA", "keda-operator"): 1.0,
    }
    assert usage.pod_seconds == {"functions": 2 * 2.0 + 3.0, "KEDA": 2.0}
    assert usage.most == {"functions": 2, "KEDA": 1}


def test_which_pods_take_part() -> None:
    assert group_of("stampede", "duel-lightcurves-5d8-x") == "functions"
    assert group_of("stampede", "stampede-alerts-cutouts-5d8-x") == "sources"
    assert group_of("knative-serving", "activator-5d8-x") == "Knative"
    assert group_of("stampede", "stampede-read-00001-deployment-x") == ""
    assert group_of("site", "kafka-0") == ""
