"""Give the key of events to PingSources, which hold it as text. Arguments: SERVER ACCOUNT NAME…

SERVER is Kubernetes' API, ACCOUNT the directory of the pod's token. The key is in
STAMPEDE_EVENT_KEY. A PingSource that has the key stays as it is.
"""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

server, account, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
namespace = (account / "namespace").read_text().strip()
url = f"{server}/apis/sources.knative.dev/v1/namespaces/{namespace}/pingsources"
header = {
    "Authorization": f"Bearer {(account / 'token').read_text().strip()}",
    "Content-Type": "application/merge-patch+json",
}
extensions = {"accesskey": os.environ["STAMPEDE_EVENT_KEY"]}
patch = json.dumps({"spec": {"ceOverrides": {"extensions": extensions}}}).encode()
trust = ssl.create_default_context(cafile=account / "ca.crt")
for name in names:
    request = urllib.request.Request(f"{url}/{name}", patch, header, method="PATCH")
    try:
        with urllib.request.urlopen(request, timeout=30, context=trust):
            print(f"PingSource {name} has the key of events")
    except urllib.error.HTTPError as error:
        sys.exit(f"PingSource {name}: {error}: {error.read().decode(errors='replace')}")
    except OSError as error:
        sys.exit(f"PingSource {name}: {server} does not answer: {error}")
