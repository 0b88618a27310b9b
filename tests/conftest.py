"""For all tests."""

import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile("hostile", max_examples=10_000, deadline=None)
# A mutant must fail, and need not fail beautifully.
settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would all
# programs that they start: some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the number of random clusters that each law checks."""
    parser.addoption("--seeds", type=int, default=1000, help="random clusters that a law checks")


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """Return the seeds of the random clusters; only tests marked as laws take them.

    A law of which a seed is a history of several passes bounds their number with `seeds_max`.
    """
    law = request.node.get_closest_marker("law")
    assert law, "a test that takes seeds needs the marker `law`: make laws selects by it"
    count: int = request.config.getoption("--seeds")
    return range(min(count, law.kwargs.get("seeds_max", count)))
