"""Whatever a server answers, the client gives what was asked for, or its own error."""

import gzip
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

import stampede_client
from stampede.alerts.columns import DETECTION
from stampede_client import Client, StampedeClientError
from tests.support.read.read_service import point

Serve = Callable[..., Client]


@pytest.fixture
def serve(short_waits: None) -> Iterator[Serve]:
    """A client of a server that responses everything with one body."""
    servers, clients = [], []

    def start(body: bytes, **headers: str) -> Client:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        clients.append(stampede_client.connect(f"http://127.0.0.1:{server.server_port}"))
        return clients[-1]

    yield start
    for client in clients:
        client.close()
    for server in servers:
        server.shutdown()
        server.server_close()


def member(name: str, data: bytes = b"data", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    info.size = len(data) if info.isreg() else 0
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as file:
        for info, data in members:
            file.addfile(info, io.BytesIO(data))
    return body.getvalue()


END = member("missing.json", b"{}")
TARS = {
    "a link": [member("11/science.fits.gz", type=tarfile.SYMTYPE, linkname="/etc/passwd"), END],
    "a hard link": [member("11/science.fits.gz", type=tarfile.LNKTYPE, linkname="none"), END],
    "a device": [member("11/science.fits.gz", type=tarfile.CHRTYPE), END],
    "an id that was not asked for": [member("12/science.fits.gz"), END],
    "no kind": [member("11/.bashrc"), END],
    "upwards": [member("../11/science.fits.gz"), END],
    "upwards inside": [member("11/../science.fits.gz"), END],
    "an absolute path": [member("/11/science.fits.gz"), END],
    "another file": [member(".ssh/authorized_keys"), END],
    "no end": [member("11/science.fits.gz")],
    "an end that is a link": [member("missing.json", type=tarfile.SYMTYPE, linkname="x")],
    "an end that is a list": [member("missing.json", b"[]")],
    "an end with other values": [member("missing.json", b'{"gone": 5}')],
    "an end with other ids": [member("missing.json", b'{"unknown_alerts": [["x"]]}')],
}


@pytest.mark.parametrize("members", TARS.values(), ids=TARS)
def test_a_tar_with_anything_else_is_an_error(serve: Serve, members: list, tmp_path: Path) -> None:
    st = serve(tar(member("11/template.fits.gz"), *members))
    with pytest.raises(StampedeClientError):
        st.fetch_cutouts([11], tmp_path / "out")
    assert not [*(tmp_path / "out").iterdir()]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def arrow(rows: pa.Table, **metadata: str) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
        if metadata:
            pairs = {f"stampede.{name}": value for name, value in metadata.items()}
            writer.write_batch(pa.RecordBatch.from_pylist([], rows.schema), custom_metadata=pairs)
    return sink.getvalue()


ROWS = pa.Table.from_pylist([point("A", "ztf", 1, 59000.0)], DETECTION)
STREAMS = {
    "an object that was not asked for": arrow(
        pa.Table.from_pylist([point("B", "ztf", 1, 59000.0)], DETECTION), missing="[]"
    ),
    "no end": arrow(ROWS),
    "an end that is no JSON": arrow(ROWS, missing="[]", incomplete="{"),
    "an end with other values": arrow(ROWS, missing="[]", incomplete="5"),
    "no object ids": arrow(ROWS.drop_columns(["object_id"]), missing="[]"),
    "no times": arrow(ROWS.drop_columns(["mjd"]), missing="[]"),
    "times that are texts": arrow(
        ROWS.set_column(ROWS.schema.get_field_index("mjd"), "mjd", pa.array(["x"])), missing="[]"
    ),
    "nothing": b"",
    "no Arrow": b"{}",
    "cut short": arrow(ROWS, missing="[]")[:500],
}


@pytest.mark.parametrize("body", STREAMS.values(), ids=STREAMS)
def test_other_light_curves_are_an_error(serve: Serve, body: bytes) -> None:
    st = serve(body)
    with pytest.raises(StampedeClientError):
        [*st.lightcurves(["A"])]


def test_what_is_a_stream_of_light_curves_is_taken(serve: Serve) -> None:
    assert len([*serve(arrow(ROWS, missing="[]")).lightcurves(["A"])]) == 1


DOCUMENTS: dict[str, object] = {
    "a list": [1],
    "nothing": {},
    "no list": {"alerts": 5, "alert_id": 5},
    "a list of texts": {"alerts": ["x"], "alert_id": ["x"]},
    "other types": {"alerts": [{"mjd": "x"}], "alert_id": "12"},
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_other_documents_are_an_error(serve: Serve, document: object) -> None:
    st = serve(json.dumps(document).encode())
    for query in (
        st.recent,
        lambda: st.alert(11),
        lambda: st.cone("1 2", 3),
        lambda: st.lightcurve("A"),
    ):
        with pytest.raises(StampedeClientError):
            query()


def test_an_answer_that_is_not_the_gzip_it_says_is_an_error(serve: Serve) -> None:
    body = gzip.compress(b"{}" * 100)
    st = serve(body[:20] + bytes(20) + body[40:], Content_Encoding="gzip")
    with pytest.raises(StampedeClientError):
        st.ledger()
