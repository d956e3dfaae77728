"""Posts an event to a function from a pod of another namespace."""

from e2e.on_cluster.release import Release

OFFSET = 99_999_999  # far beyond the end of the topic: coverage would show it


def answer(release: Release, function: str, *headers: str, path: str = "/") -> str:
    """The status that a pod of the namespace `site` gets for an event that it posts."""
    return answer_of(
        release, f"{release.name}-{function}.{release.name}.svc.cluster.local", *headers, path=path
    )


def answer_of(release: Release, host: str, *headers: str, path: str = "/") -> str:
    """As `answer`, of any host of the cluster."""
    head = "\r\n".join(
        [
            f"POST {path} HTTP/1.1",
            f"Host: {host}",
            "Content-Type: application/avro",
            "Content-Length: 1",
            "Connection: close",
            "ce-specversion: 1.0",
            "ce-type: dev.knative.kafka.event",
            "ce-source: /apis/v1/namespaces/stampede/kafkasources/stampede#lsst-alerts",
            f"ce-subject: partition:0#{OFFSET}",
            f"ce-id: partition:0/offset:{OFFSET}",
            *headers,
        ]
    )
    post = f"exec 3<>/dev/tcp/{host}/80; cat >&3; timeout 120 head -1 <&3"
    line = ("--namespace", "site", "exec", "--stdin", "statefulset/ceph", "--", "bash", "-c", post)
    words = release.cluster.kubectl(*line, stdin=f"{head}\r\n\r\nx", seconds=180).output.split()
    return words[1] if len(words) > 1 else ""
