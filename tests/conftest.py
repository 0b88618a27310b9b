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
    """How many random mixed clusters the laws look at (tests/core/test_mixed_laws.py)."""
    parser.addoption("--seeds", type=int, default=1000, help="random mixed clusters for the laws")


@pytest.fixture(scope="session")
def seeds(request: pytest.FixtureRequest) -> range:
    """The seeds of the random mixed clusters."""
    return range(request.config.getoption("--seeds"))
