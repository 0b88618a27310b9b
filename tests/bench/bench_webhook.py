"""Measure admission reviews over TLS: `python -m tests.bench.bench_webhook`.

It compares `ebb-webhook`, its handler on Go's net/http (HTTP/1.1, which the API server uses), and
an empty aiohttp handler, in turns, over one connection and over eight.
"""

import base64
import contextlib
import functools
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from serving import tls
from serving.tls_contexts import client_context
from tests.bench import programs, serving
from tests.bench.machine import factor, show
from webhook.app import MUTATE_PATH

TURNS = 5
CALLS = 400
CONNECTIONS = (1, 8)
NODE_BYTES = (12_000, 24_000)
"""Sizes of a Node; a review contains the new and the old Node."""
BUDGET_P99_MS = 2.0
BUDGET = {1: 1.0, 8: 1.1}
"""Goal for Ebb's rate relative to Go's, by connections, for the smaller Node."""
MESSAGES = Path(__file__).parents[1] / "webhook" / "messages"
MEASURED = "mark_added_foreign_taints.json"


def a_review(node_bytes: int) -> bytes:
    """Return a review whose object and oldObject are Nodes of about *node_bytes* each."""
    review = orjson.loads((MESSAGES / MEASURED).read_bytes())
    for which in ("object", "oldObject"):
        node = review["request"][which]
        image = node["status"]["images"][0]
        while len(orjson.dumps(node)) < node_bytes:
            node["status"]["images"].append(image)
    return orjson.dumps(review)


def answered(body: bytes) -> Any:
    """Return a response with the patch decoded."""
    found = orjson.loads(body)
    if "patch" in found["response"]:
        found["response"]["patch"] = orjson.loads(base64.b64decode(found["response"]["patch"]))
    return found


class Servers:
    """The running servers by name, with their ports and CA."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pair = tls.make_pair(["localhost"], int(time.time()))
        pem = folder / "pair.pem"
        pem.write_bytes(pair.certificate + pair.key)
        self.trusting = client_context(pair.ca)
        self.peer = serving.build_peer(folder)
        with serving.on_server_core():
            _, port = stack.enter_context(programs.webhook(folder, pair))
        self.ports = {"Ebb": port}
        if self.peer:
            arguments = ["-webhook", serving.ANY_PORT, "-cert", str(pem), "-key", str(pem)]
            self.ports["Go"] = stack.enter_context(self.peer.serve(*arguments))
        nothing = functools.partial(serving.nothing_app, b"{}", MUTATE_PATH)
        self.ports["no-op"] = stack.enter_context(serving.python_server(nothing, pem))

    def connect(self, port: int, body: bytes) -> serving.Connection:
        return serving.Connection(port, MUTATE_PATH, body, self.trusting)

    def check_same(self, body: bytes) -> None:
        """Check that Ebb and Go return the same response."""
        if self.peer:
            ours, theirs = (
                answered(serving.call(self.ports[who], MUTATE_PATH, body, self.trusting))
                for who in ("Ebb", "Go")
            )
            assert ours == theirs


def row(node_bytes: int, connections: int, taken: Mapping[str, serving.Taken]) -> list[str]:
    cells = [f"{node_bytes // 1000} kB", str(connections)]
    for found in taken.values():
        cells += [f"{found.ms(50):.3f}", f"{found.ms(99):.3f}", f"{found.per_second():,.0f}"]
    rate = {who: found.per_second() for who, found in taken.items()}
    budget = BUDGET[connections] if node_bytes == min(NODE_BYTES) else ""
    if "Go" in rate:
        cells += [f"{taken['Ebb'].ms(50) / taken['Go'].ms(50):.2f}"]
        cells += [f"{rate['Ebb'] / rate['Go']:.2f}", f"{budget}"]
    return [*cells, f"{rate['Ebb'] / rate['no-op']:.2f}"]


def main() -> None:
    k = factor()
    rows = []
    with contextlib.ExitStack() as stack:
        servers = Servers(stack)
        for message in sorted(MESSAGES.glob("*.json")):
            servers.check_same(message.read_bytes())
        for node_bytes in NODE_BYTES:
            body = a_review(node_bytes)
            servers.check_same(body)
            for count in CONNECTIONS:
                lines = {
                    who: [servers.connect(port, body) for _ in range(count)]
                    for who, port in servers.ports.items()
                }
                taken = serving.measure(lines, TURNS, CALLS)
                rows.append(row(node_bytes, count, taken))
    columns = ["Node", "connections"]
    for who in servers.ports:
        columns += [f"{who} p50", "p99", "a second"]
    if servers.peer:
        columns += ["p50 : Go", "a second : Go", "budget"]
    columns.append("a second : no-op")
    against = servers.peer.version if servers.peer else "no Go"
    show(f"webhook review over TLS, ms; {against}; K = {k:.2f}", columns, rows)


if __name__ == "__main__":
    main()
