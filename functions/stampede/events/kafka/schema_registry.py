"""The HTTP client of a Confluent schema registry."""

import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from typing import NamedTuple

import urllib3

from stampede.addresses import login_in, shown
from stampede.alerts import schemas
from stampede.config.secret_files import read_keys
from stampede.config.settings import Settings
from stampede.errors import SchemaRegistryDown, SetupError, Undecodable

PAUSE_SECONDS = 5.0  # until a registry that did not answer is asked again
# Until it is asked again for an id that has no schema: soon, as the id may be registered meanwhile.
UNKNOWN_SECONDS = 1.0
MOST_UNKNOWN = 1000  # such ids that are remembered
LOGIN_FILES, TOKEN_FILES = ("user", "password"), ("token",)
HOW = (
    "set STAMPEDE_SCHEMA_REGISTRY_KEYS, or STAMPEDE_SCHEMA_REGISTRY_USER and …_PASSWORD, or …_TOKEN"
)
PROBE_ID = 1
"""A registry says of any id that it has it or not, if the login may read."""


class RegistryLogin(NamedTuple):
    """How a client logs in to a registry.

    Attributes
    ----------
    name
        Who logs in, for people: never a password or token.
    headers
        Those of each request; empty without a login.
    """

    name: str
    headers: dict[str, str]


NOBODY = RegistryLogin("nobody", {})


def login_of(settings: Settings) -> RegistryLogin:
    """The login of the settings: of files, or else of variables, or else of the URL.

    Raises `SetupError` if there are two, or half of one, or if it fits into no header.
    """
    directory = settings.schema_registry_keys
    user, token = settings.schema_registry_user, settings.schema_registry_token.get_secret_value()
    password = settings.schema_registry_password.get_secret_value()
    if directory:
        found = read_keys(directory, TOKEN_FILES)
        user, password = read_keys(directory, LOGIN_FILES) or ("", "")
        token = found[0] if found else ""
        if not user and not token:
            raise SetupError(f"{directory} has no files user and password, and no file token")
    elif not user and not token:
        user, password = login_in(settings.schema_registry or "")
    if token and user:
        raise SetupError("the schema registry has a user and a token: set one of the two")
    if token:
        if not (token.isascii() and token.isprintable()):
            raise SetupError("the token of the schema registry is not printable ASCII")
        return RegistryLogin("the token", {"Authorization": f"Bearer {token}"})
    if not user:
        return NOBODY
    pair = b64encode(f"{user}:{password}".encode()).decode()
    return RegistryLogin(f"the user {user}", {"Authorization": f"Basic {pair}"})


def schemas_of(settings: Settings, timeout: float = 5.0) -> Callable[[int], schemas.Schema] | None:
    """What gives schemas by id from the registry of the settings; None if they name none."""
    return SchemaRegistry(settings, timeout).schema if settings.schema_registry else None


class SchemaRegistry:
    """Client of a Confluent schema registry, for schema ids that are not built in.

    Parameters
    ----------
    settings
        Its address, as ``http://registry:8081``, its login and its certificate authority.
    timeout
        Seconds that one request may take.
    """

    def __init__(self, settings: Settings, timeout: float = 5.0) -> None:
        self._settings, self._timeout = settings, timeout
        self._url = shown(settings.schema_registry or "").rstrip("/")
        self._http: urllib3.PoolManager | None = None
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

    def check(self) -> None:
        """Ask for a schema, whether there is one or not.

        Raises `SchemaRegistryDown` if the registry does not answer or is none, if it refuses the
        login, or if its certificate is not trusted.
        """
        response = self._answer(PROBE_ID)
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict) or not body.keys() & {"schema", "error_code"}:
            raise SchemaRegistryDown(
                f"{self._url} is no schema registry: it does not answer as one"
            )

    def _request(self, schema_id: int) -> schemas.Schema:
        response = self._answer(schema_id)
        if response.status == 404:
            raise Undecodable(f"unknown schema id {schema_id}: {self._url} does not have it")
        url = self._url_of(schema_id)
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

    def _answer(self, schema_id: int) -> urllib3.BaseHTTPResponse:
        """The registry's answer, 200 or 404."""
        url = self._url_of(schema_id)
        try:  # the login at each request: its files may have changed
            login = login_of(self._settings)
            self._http = self._http or self._pool()
            response = self._http.request("GET", url, headers=login.headers)
        except SetupError as error:
            raise SchemaRegistryDown(f"{self._url} cannot be asked: {error.message}") from None
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            self._http = None  # the file of its authority may be another one by now
            what = "does not answer"
            if isinstance(error, urllib3.exceptions.SSLError):
                what = "has a certificate that is not trusted, see STAMPEDE_SCHEMA_REGISTRY_CA"
            raise SchemaRegistryDown(f"{url} {what}: {shown(str(error))}") from error
        if response.status == 401 and login is NOBODY:
            raise SchemaRegistryDown(f"{self._url} wants a login (401): {HOW}")
        if response.status in (401, 403):
            refused = "does not accept" if response.status == 401 else "does not let read"
            raise SchemaRegistryDown(f"{self._url} {refused} {login.name} ({response.status})")
        if response.status not in (200, 404):
            raise SchemaRegistryDown(f"{url} answered {response.status}")
        return response

    def _pool(self) -> urllib3.PoolManager:
        """Raises `SetupError` for no URL, or if the file of its authority cannot be read."""
        if not self._url.startswith(("http://", "https://")):
            raise SetupError("STAMPEDE_SCHEMA_REGISTRY begins neither with http:// nor https://")
        authority = self._settings.schema_registry_ca
        try:
            trust = ssl.create_default_context(cafile=authority) if authority else None
        except OSError as error:
            raise SetupError(f"STAMPEDE_SCHEMA_REGISTRY_CA, {authority}: {error}") from None
        return urllib3.PoolManager(timeout=self._timeout, retries=False, ssl_context=trust)

    def _url_of(self, schema_id: int) -> str:
        return f"{self._url}/schemas/ids/{schema_id}"
