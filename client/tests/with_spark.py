"""Run by test_others.py in an environment that has Spark: the code of the how-to, on a bucket.

Prints the number of rows, and of each point its object, time and flux.
"""

import json
import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "mine-from-python.md"
[code] = re.findall(r"```python\n(from pyspark.*?)```", PAGE.read_text(), re.DOTALL)
names: dict = {}
exec(code.replace("path/to/bucket", sys.argv[1]), names)
points = [list(row) for row in names["points"].select("object_id", "mjd", "flux").collect()]
print(json.dumps([names["rows"].count(), sorted(points, key=str)]))
names["spark"].stop()
