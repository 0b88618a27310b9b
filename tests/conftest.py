"""Settings and fixtures of all tests."""

import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

# No test may depend on wall time, so an example has no deadline in any profile. Hypothesis itself
# registers `default` and `ci`, and loads one of them; `ci` has no deadline.
settings.register_profile("default", settings.get_profile("default"), deadline=None)
USUAL = settings.get_profile("default")
settings.register_profile("quick", USUAL, max_examples=25, derandomize=True, database=None)
settings.register_profile("nightly", USUAL, max_examples=400)
settings.register_profile("hostile", USUAL, max_examples=10_000)
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
    """Add the options for the random clusters that each law checks."""
    parser.addoption("--seeds", type=int, default=1000, help="random clusters that a law checks")
    parser.addoption("--first-seed", type=int, default=0, help="seed of the first random cluster")


def pytest_report_header(config: pytest.Config) -> str:
    """Return the options that repeat a law that fails."""
    first, count = config.getoption("--first-seed"), config.getoption("--seeds")
    return f"laws: --first-seed {first} --seeds {count}"


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """Return the seeds of the random clusters; only tests marked as laws take them.

    A law whose seed is a history of several passes limits their number with `seeds_max`. A law
    that also counts rare cases gets at least `seeds_min`.
    """
    law = request.node.get_closest_marker("law")
    assert law, "a test that takes seeds needs the marker `law`: make laws selects by it"
    first: int = request.config.getoption("--first-seed")
    count: int = request.config.getoption("--seeds")
    most, least = law.kwargs.get("seeds_max", count), law.kwargs.get("seeds_min", 0)
    return range(first, first + max(least, min(count, most)))
