"""``python -m e2e.cluster up | down | status | build | load ARCHIVE… | kubeconfig | images``."""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from e2e.cluster import Failed, choose, published
from e2e.cluster.built import binaries
from e2e.cluster.places import DOMAIN
from e2e.cluster.steps import exclusive_use, log_progress

_EXAMPLE = """\
export KUBECONFIG={kubeconfig}
# {kubectl} get pods --all-namespaces
# curl -H 'Host: FUNCTION.NAMESPACE.{domain}' http://{ingress}/"""
_EXCLUSIVE = ("up", "down", "build", "load")


def main() -> int:
    """Run the command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("up", help="start the cluster with Knative, unless it is up")
    down = commands.add_parser("down", help="stop the cluster; its files stay")
    down.add_argument("--wipe", action="store_true", help="also delete the cluster's state")
    commands.add_parser("status", help="print which cluster it is, and its state")
    commands.add_parser("build", help="build all programs and images")
    commands.add_parser("kubeconfig", help="print the path of the kubeconfig")
    commands.add_parser("images", help="print the published images of what the cluster runs")
    load = commands.add_parser("load", help="load images into the cluster")
    load.add_argument("archives", nargs="+", type=Path, help="files that docker save writes")
    tool = commands.add_parser("tool", help="print the path of a program; build it if missing")
    tool.add_argument("name", choices=(*binaries.TOOLS, *binaries.KUBE_NAMES))
    try:
        arguments = parser.parse_args()
        with exclusive_use() if arguments.command in _EXCLUSIVE else nullcontext():
            return _run(arguments)
    except Failed as failed:
        print(failed, file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; finished builds are kept", file=sys.stderr)
    return 1


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "tool":
        print(binaries.tool(arguments.name))
        return 0
    if arguments.command == "images":
        for group in published.groups():
            print(f"# {group.purpose}", *group.images, sep="\n")
        return 0
    cluster = choose()
    match arguments.command:
        case "up":
            log_progress(f"the cluster is {cluster.name}")
            cluster.up()
            print(
                _EXAMPLE.format(
                    kubeconfig=cluster.kubeconfig,
                    kubectl=cluster.kubectl,
                    ingress=cluster.ingress,
                    domain=DOMAIN,
                )
            )
        case "down":
            cluster.down(wipe=arguments.wipe)
        case "status":
            print(f"{cluster.name}: {cluster.status()}")
            return 0 if cluster.running else 3
        case "build":
            cluster.build()
        case "load":
            cluster.load(*(path.absolute() for path in arguments.archives))
        case "kubeconfig":
            print(cluster.kubeconfig)
    return 0


if __name__ == "__main__":
    sys.exit(main())
