"""Settings and fixtures of all tests."""

import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

# No test may depend on wall time, so an example has no deadline in any profile. Hypothesis itself
# registers `default` and `ci`, and loads one of them; `ci` has no deadline.
settings.register_profile("default", settings.get_profile("default"), deadline=None)
settings.register_profile("hostile", max_examples=10_000, deadline=None)
# A mutant must fail, but its example need not be minimal.
settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)

# A background shell starts its children with SIGINT ignored. Some tests send SIGINT to programs
# that they start, so this process must not pass that on.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the number of random clusters that each law checks."""
    parser.addoption("--seeds", type=int, default=1000, help="random clusters that a law checks")


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """Return the seeds of the random clusters; only tests marked as laws take them.

    A law whose seed is a history of several passes limits their number with `seeds_max`.
    """
    law = request.node.get_closest_marker("law")
    assert law, "a test that takes seeds needs the marker `law`: make laws selects by it"
    count: int = request.config.getoption("--seeds")
    return range(min(count, law.kwargs.get("seeds_max", count)))
