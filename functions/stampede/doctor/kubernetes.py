"""Kubernetes' API, read with the token of the pod's service account."""

import json
import os
import ssl
from pathlib import Path
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from stampede.doctor.finding import NotExamined

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has token, certificate authority and namespace."""
SECONDS = 5.0
OWN = "?labelSelector=app.kubernetes.io%2Fname%3Dstampede"
"""Of a list: the objects of releases."""

Document = dict[str, Any]


class Forbidden(Exception):
    """The account has no right to read this; the text is the API server's."""


class Kubernetes:
    """The API of the cluster that this process runs on.

    Raises
    ------
    NotExamined
        It is no pod, or a pod without a token.
    """

    def __init__(self) -> None:
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
        if not host:
            raise NotExamined("this is no pod of a cluster")
        try:
            token, self.namespace = (
                (ACCOUNT / name).read_text().strip() for name in ("token", "namespace")
            )
            trust = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
        except (OSError, ssl.SSLError) as error:
            raise NotExamined(
                f"the pod has no token of a service account ({error}): the chart's value "
                "doctor.knative gives it one"
            ) from None
        self._url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._header = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._http = urllib3.PoolManager(ssl_context=trust, timeout=SECONDS, retries=1)

    def get(self, path: str) -> Document | None:
        """An object or a list; None if there is no such object, or no such kind.

        Raises
        ------
        Forbidden
            The account may not read it.
        NotExamined
            The API server does not answer, or does not know the token.
        """
        try:
            response = self._http.request("GET", f"{self._url}{path}", headers=self._header)
        except HTTPError as error:
            raise NotExamined(
                f"Kubernetes' API does not answer at {self._url}; does a NetworkPolicy forbid it? "
                f"({error})"
            ) from None
        if response.status == 404:
            return None
        document = _json(response.data)
        why = document.get("message", f"it answered {response.status}")
        if response.status == 403:
            raise Forbidden(why)
        if response.status != 200:
            raise NotExamined(f"Kubernetes' API at {self._url}: {why}")
        return document


def _json(data: bytes) -> Document:
    try:
        document = json.loads(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
