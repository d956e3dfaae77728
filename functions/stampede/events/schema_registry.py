"""The HTTP client of a Confluent schema registry."""

import time

import fastavro
import urllib3

from stampede.alerts import schemas
from stampede.errors import SchemaRegistryDown, Undecodable

PAUSE_SECONDS = 5.0  # until a registry that did not answer is asked again


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
        self._down: tuple[float, SchemaRegistryDown] | None = None

    def schema(self, schema_id: int) -> schemas.Schema:
        """The schema of that id; cached, since a registered schema never changes.

        Raises `Undecodable` if the registry has no such schema, or one that is not Avro, and
        `SchemaRegistryDown` if the registry does not answer or answers something else.
        """
        if schema_id not in self._schemas:
            if self._down and time.monotonic() < self._down[0]:
                raise self._down[1].anew()
            try:
                self._schemas[schema_id] = self._request(schema_id)
            except SchemaRegistryDown as error:
                # Otherwise each message of a batch would wait for the registry in turn.
                self._down = time.monotonic() + PAUSE_SECONDS, error.anew()
                raise
        return self._schemas[schema_id]

    def _request(self, schema_id: int) -> schemas.Schema:
        url = f"{self._url}/schemas/ids/{schema_id}"
        try:
            answer = self._http.request("GET", url)
        except urllib3.exceptions.HTTPError as error:
            raise SchemaRegistryDown(f"{url} does not answer: {error}") from error
        if answer.status == 404:
            raise Undecodable(f"unknown schema id {schema_id}: {self._url} does not have it")
        if answer.status != 200:
            raise SchemaRegistryDown(f"{url} answered {answer.status}")
        try:
            body = answer.json()
            text, kind = body["schema"], body.get("schemaType", "AVRO")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SchemaRegistryDown(f"{url} answered no schema") from error
        if kind != "AVRO":
            raise Undecodable(f"schema id {schema_id} is {kind}, not Avro")
        if not isinstance(text, str):
            raise SchemaRegistryDown(f"{url} answered no schema")
        schema = schemas.read_json(text.encode("utf-8", "surrogatepass"))
        try:
            fastavro.parse_schema(schemas.simplify(schema))
        except (ValueError, fastavro.schema.SchemaParseException) as error:
            raise Undecodable(f"schema id {schema_id} is not an Avro schema: {error}") from error
        return schema
