"""What the doctor may read of a cluster, and which pods have a token for it."""

import re

import pytest
from rendering import NAMESPACE, Object, containers, pods, rendered

from stampede.doctor import ingress, knative, kubernetes, sleeping

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def of_kind(made: list[Object], kind: str) -> list[Object]:
    return [each for each in made if each["kind"] == kind]


def with_token(made: list[Object]) -> set[str]:
    """Components whose pods have a token for Kubernetes' API, all of them with all it takes."""
    found = set()
    for each in made:
        for pod in pods(each):
            mounts = [
                mount
                for container in containers(pod)
                for mount in container.get("volumeMounts", ())
                if mount["mountPath"] == TOKEN
            ]
            if mounts:
                assert len(mounts) == len(containers(pod))
                (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == mounts[0]["name"])
                token, authority, namespace = volume["projected"]["sources"]
                assert token["serviceAccountToken"]["path"] == "token"
                assert authority["configMap"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
                assert namespace["downwardAPI"]["items"][0]["path"] == "namespace"
                found.add(each["metadata"]["labels"]["app.kubernetes.io/component"])
    return found


@pytest.mark.parametrize("case", ["minimal", "full"])
def test_the_doctor_s_pods_alone_have_a_token(case: str) -> None:
    assert str(kubernetes.ACCOUNT) == TOKEN
    assert with_token(rendered(case)) == {"toolbox", "test"}


def test_the_roles_allow_what_the_doctor_reads_and_no_more() -> None:
    made = rendered("minimal")
    roles = {each["metadata"]["namespace"]: each["rules"] for each in of_kind(made, "Role")}
    assert set(roles) == {NAMESPACE, knative.SERVING, knative.EVENTING}
    own = roles.pop(NAMESPACE)
    listed = {
        f"{group}/{plural}"
        for rule in own
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    read = (*knative.KINDS, *ingress.KINDS, sleeping.KIND)
    assert listed == {re.sub("/v[^/]+/", "/", kind) for kind in read}
    assert {verb for rule in own for verb in rule["verbs"]} == {"list"}
    for (rule,) in roles.values():
        assert (rule["resources"], rule["verbs"]) == (["configmaps"], ["get"])
        assert rule["resourceNames"]


@pytest.mark.parametrize("case", ["minimal", "full", "scaling"])
def test_each_role_is_bound_to_the_account_of_the_pods(case: str) -> None:
    made = rendered(case)
    (toolbox,) = (
        pod
        for each in of_kind(made, "Deployment")
        if each["metadata"]["name"].endswith("-toolbox")
        for pod in pods(each)
    )
    roles = {(e["metadata"]["namespace"], e["metadata"]["name"]) for e in of_kind(made, "Role")}
    bound = set()
    for binding in of_kind(made, "RoleBinding"):
        (subject,) = binding["subjects"]
        assert subject["name"] == toolbox["spec"]["serviceAccountName"]
        assert subject["namespace"] == NAMESPACE
        bound.add((binding["metadata"]["namespace"], binding["roleRef"]["name"]))
    assert bound == roles
    assert len(roles) == 3


def test_without_roles_no_pod_has_a_token() -> None:
    made = rendered("full", "--set", "doctor.knative=false")
    assert with_token(made) == set()
    assert of_kind(made, "Role") + of_kind(made, "RoleBinding") == []
