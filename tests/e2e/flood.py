"""A flood of requests on many connections."""

import selectors
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.bench.serving import Connection

CONNECTIONS: Final = 32
POLL_SECONDS: Final = 0.1


@dataclass
class Flood:
    """The result of a flood."""

    answered: int = 0
    fault: Exception | None = None


@contextmanager
def flooding(connect: Callable[[], Connection]) -> Iterator[Flood]:
    """Send requests from a thread; on each connection the next follows the response at once."""
    flood, stop = Flood(), threading.Event()
    connections = [connect() for _ in range(CONNECTIONS)]

    def run() -> None:
        with selectors.DefaultSelector() as selector:
            for connection in connections:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
                connection.send()
            while not stop.is_set():
                for key, _ in selector.select(POLL_SECONDS):
                    key.data.receive()
                    flood.answered += 1
                    key.data.send()

    def report_failures() -> None:
        try:
            run()
        except Exception as fault:  # noqa: BLE001 the test reports it
            flood.fault = fault

    thread = threading.Thread(target=report_failures, daemon=True)
    thread.start()
    try:
        yield flood
    finally:
        stop.set()
        thread.join()
        for connection in connections:
            connection.socket.close()
