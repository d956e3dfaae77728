"""``python -m e2e.cluster up | down | status | build | load ARCHIVE… | kubeconfig``."""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from e2e.cluster import Failed, build, choose
from e2e.cluster.places import DOMAIN
from e2e.cluster.steps import alone, say

_EXAMPLE = """\
export KUBECONFIG={kubeconfig}
# {kubectl} get pods --all-namespaces
# curl -H 'Host: FUNCTION.NAMESPACE.{domain}' http://{ingress}/"""
_ALONE = ("up", "down", "build", "load")


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("up", help="bring it up with Knative; nothing is done if it is")
    down = commands.add_parser("down", help="take it down, leaving nothing but files")
    down.add_argument("--wipe", action="store_true", help="and forget what was in it")
    commands.add_parser("status", help="which cluster, and how it is")
    commands.add_parser("build", help="build what it is made of")
    commands.add_parser("kubeconfig", help="print the path of its kubeconfig")
    load = commands.add_parser("load", help="give it images")
    load.add_argument("archives", nargs="+", type=Path, help="what docker save writes")
    tool = commands.add_parser("tool", help="print the path of a program, built if need be")
    tool.add_argument("name", choices=(*build.TOOLS, *build.KUBE_NAMES))
    try:
        asked = parser.parse_args()
        with alone() if asked.command in _ALONE else nullcontext():
            return _do(asked)
    except Failed as failed:
        print(failed, file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; what was built is kept", file=sys.stderr)
    return 1


def _do(asked: argparse.Namespace) -> int:
    if asked.command == "tool":
        print(build.tool(asked.name))
        return 0
    cluster = choose()
    match asked.command:
        case "up":
            say(f"this is {cluster.name}")
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
            cluster.down(wipe=asked.wipe)
        case "status":
            print(f"{cluster.name}: {cluster.status()}")
            return 0 if cluster.running else 3
        case "build":
            cluster.build()
        case "load":
            cluster.load(*(path.absolute() for path in asked.archives))
        case "kubeconfig":
            print(cluster.kubeconfig)
    return 0


if __name__ == "__main__":
    sys.exit(main())
