"""Addresses are looked up once for many, and again once they are old or wrong."""

import asyncio
import socket

import pytest

from stampede.http import resolver as module
from stampede.http.client import Connections, Unreachable
from stampede.http.resolver import Addresses

pytestmark = pytest.mark.anyio


class Names:
    """What a name server says, and how often it was asked."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked = 0
        self.seconds = 0.0

    async def look_up(self, host: str) -> list[str]:
        self.asked += 1
        await asyncio.sleep(self.seconds)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, f"{host} is not known")
        return list(self.addresses)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names("127.0.0.1")
    monkeypatch.setattr(module, "look_up", names.look_up)
    return names


async def test_many_connections_need_one_look_up(names: Names) -> None:
    """Also while the name server is slow, and for those that begin while it is awaited."""
    names.seconds = 0.2
    served = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        served.append(writer)
        while len(served) < 50:  # so that no connection is used twice
            await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(30), Connections(0, 4, 5, 5) as http:
        url = f"http://sink.stampede.svc:{port}/"
        await asyncio.gather(*(http.post(url, {}, b"") for _ in range(50)))
        assert http.made == 50
        assert (await http.post(url, {}, b"")).status == 204
    server.close()
    assert names.asked == 1


async def test_it_is_asked_again_for_an_old_address(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_SECONDS", 0.05)
    hosts = Addresses()
    assert await hosts.of("sink") == ["127.0.0.1"]
    names.addresses = ["127.0.0.2"]
    assert await hosts.of("sink") == ["127.0.0.1"]
    await asyncio.sleep(0.2)
    assert await hosts.of("sink") == ["127.0.0.2"]
    assert names.asked == 2


async def test_it_is_asked_again_if_nothing_answers_there(names: Names) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with asyncio.timeout(30), Connections(0, 4, 5, 5) as http:
        for asked in (1, 2):
            with pytest.raises(Unreachable, match=f"cannot connect to sink:{port}"):
                await http.post(f"http://sink:{port}/", {}, b"")
            assert names.asked == asked


async def test_an_address_that_refuses_is_passed_over(names: Names) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    names.addresses = ["127.0.0.2", "127.0.0.1"]
    async with asyncio.timeout(30), Connections(0, 4, 5, 5) as http:
        assert (await http.post(f"http://sink:{port}/", {}, b"")).status == 204
    server.close()


async def test_the_servers_of_a_name_share_connections(names: Names) -> None:
    names.addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"]
    hosts = Addresses()
    orders = {tuple(await hosts.of("gateway")) for _ in range(100)}
    assert len(orders) == 6
    assert {order[-1] for order in orders} == {"fd00::1"}
    assert names.asked == 1


async def test_a_name_that_is_not_known(names: Names) -> None:
    names.addresses = []
    hosts = Addresses()
    for asked in (1, 2):
        with pytest.raises(OSError, match="sink is not known"):
            await hosts.of("sink")
        assert names.asked == asked


async def test_who_gives_up_does_not_end_the_look_up_of_others(names: Names) -> None:
    names.seconds = 0.2
    hosts = Addresses()
    one, other = (asyncio.create_task(hosts.of("sink")) for _ in range(2))
    await asyncio.sleep(0.05)
    one.cancel()
    assert await other == ["127.0.0.1"]
    assert names.asked == 1


async def test_an_address_is_its_own(names: Names) -> None:
    assert await Addresses().of("127.0.0.1") == ["127.0.0.1"]
    assert await Addresses().of("::1") == ["::1"]
    assert not names.asked


async def test_the_system_is_asked() -> None:
    assert "127.0.0.1" in await module.look_up("localhost")
    with pytest.raises(OSError, match=r"."):
        await module.look_up("no-such-host.invalid")
