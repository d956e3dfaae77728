import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stampede.errors import SchemaRegistryDown, Undecodable
from stampede.functions.schema_registry import SchemaRegistry

ALERT = {"type": "record", "name": "alert", "fields": [{"name": "f0", "type": "long"}]}


class Registry(BaseHTTPRequestHandler):
    """Confluent's ``GET /schemas/ids/{id}``, with prepared answers."""

    def do_GET(self):
        self.server.asked.append(self.path)
        status, body = self.server.answers.get(
            self.path, (404, {"error_code": 40403, "message": "Schema not found"})
        )
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def registry():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    server.answers, server.asked = {}, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_registry_is_asked_once_and_simplified(registry):
    schema = {**ALERT, "name": "lsst.v12_0.alert", "doc": "new"}
    registry.answers["/schemas/ids/1200"] = (200, {"schema": json.dumps(schema)})
    client = SchemaRegistry(registry.url + "/")
    assert client.schema(1200) == client.schema(1200) == ALERT
    assert registry.asked == ["/schemas/ids/1200"]


def test_registry_without_the_id_is_undecodable_and_asked_again(registry):
    client = SchemaRegistry(registry.url)
    with pytest.raises(Undecodable, match="1201"):
        client.schema(1201)
    registry.answers["/schemas/ids/1201"] = (200, {"schema": '"long"'})
    assert client.schema(1201) == "long"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, {"schema": "{not json"}), Undecodable),
        ((200, {"schema": '{"type": "record", "name": "a"}'}), Undecodable),
        ((200, {"schema": "{}", "schemaType": "JSON"}), Undecodable),
        ((200, {"no": "schema"}), SchemaRegistryDown),
        ((200, b"<html>"), SchemaRegistryDown),
        ((500, {"error_code": 50001}), SchemaRegistryDown),
        ((401, {}), SchemaRegistryDown),
    ],
)
def test_registry_answers(registry, answer, error):
    registry.answers["/schemas/ids/7"] = answer
    with pytest.raises(error):
        SchemaRegistry(registry.url).schema(7)


def test_registry_down_is_tried_again():
    client = SchemaRegistry("http://127.0.0.1:1", timeout=2)
    with pytest.raises(SchemaRegistryDown) as caught:
        client.schema(1200)
    assert caught.value.status == 503
    assert "127.0.0.1:1" in caught.value.message
