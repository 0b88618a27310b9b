"""A pytest plugin: a mutant that never ends costs each test's processor time, not hours.

The time of the wall would count a mutant as noticed because the machine is busy. Without a mutant
nothing is ended: the first test that needs what others keep takes longer in another order.
"""

import resource
from collections.abc import Generator
from typing import Final

import pytest
from mutmut.mutation.trampoline import get_mutant_under_test
from mutmut.state import state

CPU_SECONDS_MIN: Final = 10
TIMES_LONGER_MAX: Final = 5
"""Than the same test took without a mutant."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let the system end (SIGXCPU) a test that takes far longer than it did; outside no limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    took = state().duration_by_test.get(item.nodeid)
    if took and get_mutant_under_test():
        used = resource.getrusage(resource.RUSAGE_SELF)
        until = used.ru_utime + used.ru_stime + CPU_SECONDS_MIN + TIMES_LONGER_MAX * took
        limit = int(until) if hard == resource.RLIM_INFINITY else min(int(until), hard)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    try:
        return (yield)
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
