"""The addresses on which the programs listen, over real sockets."""

import asyncio
import socket

import pytest

from core.model.errors import InvalidInputError
from core.setting_types.value_types import ADDRESS
from serving import http
from serving.connections import bind_everywhere
from tests.support.clock import FakeClock
from tests.support.flags_page import PROGRAMS

DEFAULTS = [
    flag.default for flags in PROGRAMS.values() for flag in flags if flag.format is ADDRESS
]


def is_bindable(address: str) -> bool:
    """Return whether the address can be bound here: a machine may have no IPv6."""
    try:
        with socket.create_server((address, 0), family=family_of(address)):
            return True
    except OSError:
        return False


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


LOOPBACKS = list(filter(is_bindable, ("127.0.0.1", "::1")))


def test_default_addresses_are_different() -> None:
    assert len({*DEFAULTS}) == len(DEFAULTS) == 4


@pytest.mark.parametrize("listen", DEFAULTS)
async def test_program_listens_on_all_ipv4_and_ipv6_addresses_by_default(
    listen: str,
) -> None:
    host, _, _ = listen.rpartition(":")
    server = http.Server(http.base_app(http.Health(), FakeClock()), f"{host}:0")
    await server.start()
    for address in LOOPBACKS:
        reader, writer = await asyncio.open_connection(address, server.port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"ok")
        writer.close()
    await server.stop()


def test_program_listens_on_ipv4_when_ipv6_is_missing() -> None:
    with bind_everywhere(0, ipv6=False) as bound:
        assert bound.family == socket.AF_INET
        with socket.create_connection(("127.0.0.1", bound.getsockname()[1])):
            pass


@pytest.mark.parametrize("address", LOOPBACKS)
async def test_program_fails_to_start_when_port_is_in_use_on_one_address(address: str) -> None:
    with socket.create_server((address, 0), family=family_of(address)) as taken:
        listen = f"[::]:{taken.getsockname()[1]}"
        server = http.Server(http.base_app(http.Health(), FakeClock()), listen)
        with pytest.raises(InvalidInputError, match="address already in use"):
            await server.start()
        await server.stop()
