"""A pytest plugin that limits the processor time of tests that run with a mutant.

A mutant that loops forever is killed (SIGXCPU). Processor time does not depend on the load of the
machine. With wall time, a test that is slow because of this load would seem to detect the mutant.
"""

import resource
from collections.abc import Generator
from typing import Final

import pytest
from mutmut.mutation.trampoline import get_mutant_under_test
from mutmut.state import state

CPU_SECONDS_MIN: Final = 10
TIMES_LONGER_MAX: Final = 5
"""Factor for the time of the same test without a mutant."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the processor time of the process during a test, if a mutant is active."""
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
