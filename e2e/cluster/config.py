"""Configuration files and command lines of the programs that run on the node."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from e2e.cluster import binaries, images
from e2e.cluster.places import (
    CONFIG,
    CONTAINERD,
    CONTAINERD_SOCKET,
    KUBECONFIG,
    NODE,
    NODE_IP,
    PKI,
    PODS,
    RUN,
    SERVICES,
)

_ETCD = "http://127.0.0.1:2379"

_CONTAINERD = f"""
version = 2
root = "{CONTAINERD}"
state = "/run/containerd/state"  # in memory, as after a reboot
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE_IMAGE}"
  restrict_oom_score_adj = true  # CAP_SYS_RESOURCE may be missing
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{CONFIG / "cni"}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{RUN}/opt"
"""
_COREDNS = f""".:53 {{
  bind {NODE_IP}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {KUBECONFIG} stampede-e2e
    ttl 5
  }}
  cache 5
}}
"""
_CNI: dict[str, Any] = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "pods",
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                # In memory: addresses must not outlive their pods.
                "dataDir": "/run/containerd/addresses",
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}
_KUBELET: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": f"{PKI}/ca.crt"},
    },
    "authorization": {"mode": "Webhook"},
    "tlsCertFile": f"{PKI}/kubelet.crt",
    "tlsPrivateKeyFile": f"{PKI}/kubelet.key",
    "address": NODE_IP,
    "clusterDNS": [NODE_IP],
    "clusterDomain": "cluster.local",
    "resolvConf": f"{CONFIG}/resolv.conf",
    "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "oomScoreAdj": 0,
    # The disk may be nearly full, and no image could be pulled again.
    "evictionHard": {
        "imagefs.available": "1%",
        "nodefs.available": "1%",
        "memory.available": "100Mi",
    },
    "imageGCHighThresholdPercent": 100,
    "imageGCLowThresholdPercent": 99,
    "maxPods": 200,
    "serializeImagePulls": False,
    "registryPullQPS": 0,
    "podLogsDir": f"{RUN}/pod-logs",
    "volumePluginDir": f"{RUN}/volume-plugins",
    "logging": {"verbosity": 1},
}
_KUBE_PROXY: dict[str, Any] = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "clientConnection": {"kubeconfig": f"{KUBECONFIG}"},
    "clusterCIDR": PODS,
    "bindAddress": NODE_IP,
    "hostnameOverride": NODE,
    "mode": "nftables",
    "oomScoreAdj": 0,
    # Do not change the machine's connection-tracking settings.
    "conntrack": {
        "maxPerCore": 0,
        "min": 0,
        "tcpEstablishedTimeout": "0s",
        "tcpCloseWaitTimeout": "0s",
    },
}
_FILES = {
    "containerd.toml": _CONTAINERD,
    "Corefile": _COREDNS,
    "resolv.conf": f"nameserver {NODE_IP}\n",
    "cni/pods.conflist": json.dumps(_CNI),
    "kubelet.json": json.dumps(_KUBELET),
    "kube-proxy.json": json.dumps(_KUBE_PROXY),
}


class Server(NamedTuple):
    """One program of the node, and its command line."""

    name: str
    command: list[str]


def write() -> None:
    """Write all configuration files."""
    for name, text in _FILES.items():
        file = CONFIG / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def servers() -> Iterator[Server]:
    """The node's programs in the order of their start. Each waits by itself for those it needs."""
    yield Server("containerd", ["containerd", "--config", f"{CONFIG}/containerd.toml"])
    yield _server(
        binaries.kube("etcd"),
        data_dir=RUN / "etcd",
        listen_client_urls=_ETCD,
        advertise_client_urls=_ETCD,
        listen_peer_urls="http://127.0.0.1:2380",
        log_level="warn",
        # No test cuts the machine's power, and waiting for the disk is slow.
        unsafe_no_fsync=True,
    )
    yield _server(
        binaries.kube("kube-apiserver"),
        etcd_servers=_ETCD,
        advertise_address=NODE_IP,
        secure_port=6443,
        service_cluster_ip_range=SERVICES,
        authorization_mode="RBAC",
        allow_privileged=True,
        client_ca_file=PKI / "ca.crt",
        tls_cert_file=PKI / "apiserver.crt",
        tls_private_key_file=PKI / "apiserver.key",
        service_account_issuer="https://kubernetes.default.svc.cluster.local",
        service_account_key_file=PKI / "accounts.pub",
        service_account_signing_key_file=PKI / "accounts.key",
        kubelet_client_certificate=PKI / "admin.crt",
        kubelet_client_key=PKI / "admin.key",
        kubelet_certificate_authority=PKI / "ca.crt",
        kubelet_preferred_address_types="InternalIP",
        requestheader_client_ca_file=PKI / "ca.crt",
        requestheader_allowed_names="front-proxy-client",
        requestheader_username_headers="X-Remote-User",
        requestheader_group_headers="X-Remote-Group",
        requestheader_extra_headers_prefix="X-Remote-Extra-",
        proxy_client_cert_file=PKI / "front-proxy.crt",
        proxy_client_key_file=PKI / "front-proxy.key",
        enable_aggregator_routing=True,
        profiling=False,
    )
    ours = dict.fromkeys(_KUBECONFIGS, KUBECONFIG)
    alone = {"leader_elect": False, "bind_address": "127.0.0.1"}
    yield _server(
        binaries.kube("kube-controller-manager"),
        **ours,
        **alone,
        service_account_private_key_file=PKI / "accounts.key",
        root_ca_file=PKI / "ca.crt",
        cluster_signing_cert_file=PKI / "ca.crt",
        cluster_signing_key_file=PKI / "ca.key",
        allocate_node_cidrs=False,
        flex_volume_plugin_dir=RUN / "volume-plugins",
    )
    yield _server(binaries.kube("kube-scheduler"), **ours, **alone)
    yield _server(
        binaries.kube("kubelet"),
        config=CONFIG / "kubelet.json",
        kubeconfig=KUBECONFIG,
        root_dir=RUN / "kubelet",
        hostname_override=NODE,
        node_ip=NODE_IP,
    )
    yield _server(binaries.kube("kube-proxy"), config=CONFIG / "kube-proxy.json")
    yield Server("coredns", [str(binaries.coredns()), "-conf", f"{CONFIG}/Corefile"])


_KUBECONFIGS = ("kubeconfig", "authentication_kubeconfig", "authorization_kubeconfig")


def _server(program: Path, **options: object) -> Server:
    """A program with options in the form ``--a-b=c``."""
    words = []
    for name, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words.append(f"--{name.replace('_', '-')}={text}")
    return Server(program.name, [str(program), *words])
