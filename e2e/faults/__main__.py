"""``python -m e2e.faults``: a campaign of faults, and a table of what was injected."""

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from e2e.faults.campaign import Campaign, Plan


def main() -> int:
    """Run the campaign of the command line. Returns 0 if nothing was wrong afterwards."""
    parser = argparse.ArgumentParser(prog="python -m e2e.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--alerts", type=int, default=6000)
    parser.add_argument("--seconds", type=float, default=1.5, help="between two faults")
    parser.add_argument("--keep", type=Path, help="directory of the logs")
    arguments = parser.parse_args()
    plan = Plan(arguments.seed, arguments.faults, arguments.alerts, arguments.seconds)
    directory = arguments.keep or Path(tempfile.mkdtemp(prefix="stampede-faults-"))
    print(f"{plan}; logs in {directory}", flush=True)
    try:
        campaign = Campaign(plan, directory)
        done = campaign.run()
    except BaseException:
        traceback.print_exc()
        print(f"FAILED. Again: make faults SEED={plan.seed} FAULTS={plan.faults}")
        return 1
    width = max(map(len, done))
    for name, count in sorted(done.items()):
        print(f"{name:{width}}  {count:6,}")
    for why in campaign.left_out:
        print(f"never injected: {why}")
    print(f"nothing was wrong after {plan.faults} faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
