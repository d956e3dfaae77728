"""`python -m stampede_bench NAME...`: `stampede bench NAME...` where no entry points are installed.

The image of the benchmarks is such a place: it holds source code, not an installed distribution.
"""

import sys

from stampede.cli.main import app, main
from stampede_bench.cli import bench

if __name__ == "__main__":
    sys.argv.insert(1, "bench")
    app.command("bench")(bench)
    main()
