"""Measure costly request bodies: `python -m tests.bench.bench_bodies [MIB]`.

The handlers of webhook and extender answer each body in this process, without sockets. Memory is
the peak during an answer, including the body itself.
"""

import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import suppress

from core.marks.wellknown import TAINT_KEY
from core.model.errors import InvalidInputError
from extender import wire as extender
from tests.bench.machine import factor, show
from tests.support.large_bodies import CALLS, REVIEWS
from webhook import wire as webhook
from webhook.app import REVIEW_BYTES_MAX

BUDGET_MS = 20.0
BUDGET_MS_PER_MIB = 4.0
BUDGET_COPIES = 4
BUDGET_MB = 50.0
TURNS = 3


def call(body: bytes) -> None:
    extender.pod_to_schedule(extender.call(body).pod)


def review(body: bytes) -> None:
    webhook.review(body, TAINT_KEY)


def answered(answer: Callable[[bytes], None], body: bytes) -> float:
    """Return the milliseconds until the body is answered or rejected."""
    start = time.perf_counter()
    with suppress(InvalidInputError):
        answer(body)
    return (time.perf_counter() - start) * 1e3


def peak_mb(answer: Callable[[bytes], None], body: bytes) -> float:
    tracemalloc.start()
    answered(answer, body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (peak + len(body)) / 1e6


def rows(
    program: str,
    answer: Callable[[bytes], None],
    bodies: Mapping[str, Callable[[int], bytes]],
    size: int,
    k: float,
) -> list[list[str]]:
    found = []
    for name, make in bodies.items():
        body = make(size)
        mib = len(body) / 2**20
        millis = min(answered(answer, body) for _ in range(TURNS)) / k
        found.append(
            [
                program,
                name,
                f"{mib:.0f}",
                f"{millis:.0f}",
                f"{BUDGET_MS + BUDGET_MS_PER_MIB * mib:.0f}",
                f"{peak_mb(answer, body):.0f}",
                f"{BUDGET_COPIES * len(body) / 1e6 + BUDGET_MB:.0f}",
            ]
        )
    return found


def main() -> None:
    most = int(float(sys.argv[1]) * 2**20) if len(sys.argv) > 1 else extender.BODY_BYTES_MAX
    k = factor()
    calls = min(most, extender.BODY_BYTES_MAX - 20_000)
    reviews = min(most, REVIEW_BYTES_MAX - 20_000)
    show(
        f"one body, ms x K and MB; K = {k:.2f}",
        ["program", "large", "MiB", "ms x K", "budget", "MB", "budget"],
        [*rows("webhook", review, REVIEWS, reviews, k), *rows("extender", call, CALLS, calls, k)],
    )


if __name__ == "__main__":
    main()
