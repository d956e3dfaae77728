"""The kind cluster, and the node image that is built here."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.cluster import Failed, kind
from e2e.cluster.built import binaries, docker, images, kind_image, machine
from e2e.cluster.kind import BuiltKind, Kind
from e2e.cluster.places import BUILT, INGRESS_PORT, ROOT

CONFIG = ROOT / "e2e" / "kind.yaml"
NODE = f"{kind.NAME}-control-plane"


@pytest.fixture(autouse=True)
def _usual_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKERS", raising=False)


def test_the_ingress_port_is_mapped_to_this_machine() -> None:
    ports = f"containerPort: {INGRESS_PORT}\n        hostPort: {INGRESS_PORT}\n"
    assert ports in CONFIG.read_text()
    assert Kind.ingress.endswith(f":{INGRESS_PORT}")


def test_the_page_about_a_cluster_names_the_kubeconfig() -> None:
    path = f"~/.cache/stampede/cluster/{Kind.kubeconfig.name}"
    assert f"$ export KUBECONFIG={path}\n" in (ROOT / "docs" / "cluster.md").read_text()


def test_a_cluster_of_the_built_image_pulls_nothing_and_can_be_reached() -> None:
    config = yaml.safe_load(kind_image.cluster_config(kind.config(), docker.LINK.node))
    node, *_ = config["nodes"]
    assert node["image"] == kind_image.name()
    assert BuiltKind.ingress == f"{node['extraPortMappings'][0]['listenAddress']}:{INGRESS_PORT}"
    kubeadm, *_ = map(yaml.safe_load, config["kubeadmConfigPatches"])
    repositories = [kubeadm, kubeadm["dns"], kubeadm["etcd"]["local"]]
    assert {each["imageRepository"] for each in repositories} == {images.REGISTRY}
    (mount,) = node["extraMounts"]
    assert images.archive_path(images.PAUSE_IMAGE).parent == Path(mount["hostPath"])
    assert f"#{images.PAUSE_IMAGE}#" in (BUILT / "kind_node" / "Dockerfile").read_text()


def test_workers_are_as_many_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    given = yaml.safe_load(kind_image.cluster_config(kind.config(), docker.LINK.node))
    first, *workers = given["nodes"]
    assert [each["role"] for each in given["nodes"]] == ["control-plane", "worker", "worker"]
    assert all(each["image"] == kind_image.name() for each in workers)
    assert all(each["extraMounts"] == first["extraMounts"] for each in workers)
    assert not any("extraPortMappings" in each for each in workers)  # the host has one such port
    monkeypatch.setenv("WORKERS", "0")
    assert [each["role"] for each in kind.config()["nodes"]] == ["control-plane"]
    monkeypatch.setenv("WORKERS", "two")
    with pytest.raises(Failed, match="WORKERS=two: it must be a number"):
        kind.config()


def test_a_cluster_that_is_up_has_the_workers_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Kind, "build", lambda _: None)
    monkeypatch.setattr(Kind, "running", True)
    monkeypatch.setattr(Kind, "nodes", [NODE])
    monkeypatch.setenv("WORKERS", "2")
    with pytest.raises(Failed, match="WORKERS=2, but the cluster that is up has 0: make e2e-down"):
        Kind().up()


def test_workers_get_the_images_of_pods_that_run_there(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    loaded: list[tuple[str, str]] = []
    archives = []
    for name in ("queue", "activator"):
        (place / name).write_bytes(name.encode())
        images.write_program_image(place / name, images.SERVING.image(name))
        archives.append(images.archive_path(images.SERVING.image(name)))
    cluster, worker = BuiltKind(), f"{kind.NAME}-worker"
    nodes = [f"{kind.NAME}-control-plane", worker]
    monkeypatch.setattr(BuiltKind, "nodes", nodes)
    monkeypatch.setattr(cluster, "docker", lambda *line: f"id-of-{nodes.index(line[-1])}")
    monkeypatch.setattr(
        cluster, "_load_one", lambda archive, node: loaded.append((archive.name, node))
    )
    cluster.load(*archives)
    assert sorted(loaded) == sorted(
        [*((each.name, nodes[0]) for each in archives), (archives[0].name, worker)]
    )


def test_the_node_reads_archives_that_it_sees_and_kind_sends_others(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    lines: list[str] = []

    def run(*command: object, **_: object) -> str:
        lines.append(" ".join(map(str, command)))
        return NODE if "nodes" in command else "0123456789abcdef"

    def archive(name: str) -> Path:
        (place / name).write_bytes(name.encode())
        images.write_program_image(place / name, image := f"{images.REGISTRY}/{name}:1")
        return images.archive_path(image)

    seen, sent = archive("seen"), archive("sent").rename(place / "sent.tar")
    monkeypatch.setattr(kind, "run", run)
    monkeypatch.setattr(binaries, "tool", lambda name: Path(name))
    BuiltKind().load(seen, sent)
    assert any(line.endswith(f" {kind_image.ARCHIVES}/{seen.name}") for line in lines)
    assert f"kind load image-archive --name={kind.NAME} --nodes={NODE} {sent}" in lines


def test_runc_gets_no_capability_that_the_machine_may_lack(tmp_path: Path) -> None:
    process = {
        "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "effective": ["CAP_KILL"]},
        "oomScoreAdj": -999,
    }
    lower = {"capabilities": {"bounding": ["CAP_CHOWN"], "effective": ["CAP_KILL"]}}
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)
    (tmp_path / "config.json").write_text(json.dumps({"process": process, "root": {}}))
    (tmp_path / "process.json").write_text(json.dumps(process))
    for line in (
        ("--log", "create", "create", "--bundle", str(tmp_path), "id"),
        ("exec", "--process", f"{tmp_path}/process.json", "id"),
    ):
        done = subprocess.run(
            [BUILT / "kind_node" / "runc", *line],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
        assert done.stdout == " ".join(line) + "\n", done.stderr
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {"process": lower | {"oomScoreAdj": 0}, "root": {}}
    assert json.loads((tmp_path / "process.json").read_text()) == lower | {"oomScoreAdj": 0}


def test_another_process_with_the_same_id_is_not_the_daemon(place: Path) -> None:
    assert not docker.running()
    started = machine.start_time(os.getpid())
    assert started is not None
    docker.PID.write_text(f"{os.getpid()} {started}")
    assert docker.running()
    docker.PID.write_text(f"{os.getpid()} {started - 1}")
    assert not docker.running()


@pytest.mark.parametrize(
    ("script", "advice"),
    [
        ("", "lacks docker.io: sudo apt-get install docker.io; sudo usermod .*--groups docker"),
        ("exit 1", "no Docker daemon answers you; if one runs: sudo usermod .*--groups docker"),
        ("exit 0", "can neither pull kind's node image nor has it"),
    ],
    ids=["no docker", "no daemon", "no image"],
)
def test_an_ordinary_user_is_told_what_the_cluster_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, advice: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    if script:
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "docker").chmod(0o755)
    with pytest.raises(Failed, match=rf"(?s){advice}.*of our own needs root"):
        BuiltKind().up()


def test_the_remains_of_a_killed_daemon_are_removed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    monkeypatch.setattr(machine, "unlink", called.append)
    monkeypatch.setattr(machine, "remove_cgroups", called.append)
    docker.stop()  # of a machine on which none was started
    assert called == []
    with subprocess.Popen(["sleep", "60"]) as dead:
        docker.PID.write_text(f"{dead.pid} {machine.start_time(dead.pid)}")
        dead.kill()
    docker.SOCKET.touch()
    assert not BuiltKind().running
    docker.stop()
    assert called == [docker.LINK, docker.CGROUP]
    assert not docker.SOCKET.exists()
