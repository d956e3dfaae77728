"""The HTTP client of a Confluent schema registry."""

import time

import urllib3

from stampede.alerts import schemas
from stampede.errors import SchemaRegistryDown, Undecodable

PAUSE_SECONDS = 5.0  # until a registry that did not answer is asked again
# Until it is asked again for an id that has no schema: soon, as the id may be registered meanwhile.
UNKNOWN_SECONDS = 1.0
MOST_UNKNOWN = 1000  # such ids that are remembered


class SchemaRegistry:
    """Client of a Confluent schema registry, for schema ids that are not built in.

    Parameters
    ----------
    url
        Its address, for example ``http://registry:8081``.
    timeout
        Seconds that one request may take.
    """

    def __init__(self, url: str, timeout: float = 5.0) -> None:
        self._url = url.rstrip("/")
        self._http = urllib3.PoolManager(timeout=timeout, retries=False)
        self._schemas: dict[int, schemas.Schema] = {}
        self._unknown: dict[int, tuple[float, Undecodable]] = {}
        self._down: tuple[float, SchemaRegistryDown] | None = None

    def schema(self, schema_id: int) -> schemas.Schema:
        """The schema of that id; cached, since a registered schema never changes.

        Raises `Undecodable` if the registry has no such schema, or one that is not Avro, and
        `SchemaRegistryDown` if the registry does not respond, or not with a schema.
        """
        if schema_id not in self._schemas:
            # Otherwise each message of a batch would wait for the registry in turn.
            for failure in (self._down, self._unknown.get(schema_id)):
                if failure and time.monotonic() < failure[0]:
                    raise failure[1].anew()
            now = time.monotonic()
            try:
                self._schemas[schema_id] = self._request(schema_id)
            except SchemaRegistryDown as error:
                self._down = now + PAUSE_SECONDS, error.anew()
                raise
            except Undecodable as error:
                if len(self._unknown) >= MOST_UNKNOWN:
                    self._unknown.clear()
                self._unknown[schema_id] = now + UNKNOWN_SECONDS, error.anew()
                raise
        return self._schemas[schema_id]

    def _request(self, schema_id: int) -> schemas.Schema:
        url = f"{self._url}/schemas/ids/{schema_id}"
        try:
            response = self._http.request("GET", url)
        except urllib3.exceptions.HTTPError as error:
            raise SchemaRegistryDown(f"{url} does not answer: {error}") from error
        if response.status == 404:
            raise Undecodable(f"unknown schema id {schema_id}: {self._url} does not have it")
        if response.status != 200:
            raise SchemaRegistryDown(f"{url} answered {response.status}")
        try:
            body = response.json()
            text, kind = body["schema"], body.get("schemaType", "AVRO")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SchemaRegistryDown(f"{url} answered no schema") from error
        if kind != "AVRO":
            raise Undecodable(f"schema id {schema_id} is {kind}, not Avro")
        if not isinstance(text, str):
            raise SchemaRegistryDown(f"{url} answered no schema")
        schema = schemas.read_json(text.encode("utf-8", "surrogatepass"))
        schemas.simplify(schema)
        return schema
