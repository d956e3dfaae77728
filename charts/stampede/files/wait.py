"""Wait until each URL answers with 2xx. Arguments: SECONDS URL…"""

import sys
import time
import urllib.request

deadline = time.monotonic() + float(sys.argv[1])
for url in sys.argv[2:]:
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                print(f"{url} answers {answer.status}")
                break
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"{url} does not answer: {error}")
            time.sleep(1)
