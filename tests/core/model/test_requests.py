"""Pod requests: the examples of the KEPs, and laws for any pod."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.quantity import millis as millis_of
from core.model.requests import Amounts, Container, PodParts, pod_requests
from core.model.resources import Resources


def cores(amount: str) -> Amounts:
    return {"cpu": millis_of(amount)}


def cpu(
    amount: str, *, sidecar: bool = False, allocated: tuple[str, str | None] | None = None
) -> Container:
    """A container; *allocated*: (running, allocated) of its status."""
    running: tuple[Amounts, ...] = ()
    if allocated is not None:
        running = (cores(allocated[0]), {} if allocated[1] is None else cores(allocated[1]))
    return Container(cores(amount), restartable=sidecar, allocated=running)


@pytest.mark.parametrize(
    ("parts", "millis"),
    [
        pytest.param(PodParts(), 0, id="no containers"),
        pytest.param(
            PodParts(containers=[cpu("1"), cpu("200m")]), 1200, id="containers run together"
        ),
        pytest.param(
            PodParts(containers=[cpu("1")], init_containers=[cpu("3"), cpu("2")]),
            3000,
            id="init containers run one after the other",
        ),
        pytest.param(
            PodParts(containers=[cpu("2")], init_containers=[cpu("1")]),
            2000,
            id="a small init container adds nothing",
        ),
        pytest.param(
            PodParts(containers=[cpu("1")], init_containers=[cpu("500m", sidecar=True)]),
            1500,
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            PodParts(
                containers=[cpu("1")],
                init_containers=[cpu("1", sidecar=True), cpu("5"), cpu("2", sidecar=True)],
            ),
            6000,
            id="an init container runs beside the sidecars before it, not after it",
        ),
        pytest.param(
            PodParts(
                containers=[cpu("1")],
                init_containers=[cpu("5"), cpu("1", sidecar=True), cpu("2", sidecar=True)],
            ),
            5000,
            id="sidecars start after the init container",
        ),
        pytest.param(
            PodParts(containers=[cpu("1")], init_containers=[cpu("3")], overhead=cores("250m")),
            3250,
            id="overhead is added to the larger sum",
        ),
        pytest.param(
            PodParts(containers=[cpu("1"), cpu("2")], pod_level=cores("5")),
            5000,
            id="pod-level requests replace the sum",
        ),
        pytest.param(
            PodParts(containers=[cpu("1")], pod_level=cores("5"), overhead=cores("1")),
            6000,
            id="overhead is added to pod-level requests",
        ),
        pytest.param(
            PodParts(containers=[cpu("1")], pod_level={"memory": 1024**3}),
            1000,
            id="pod-level requests of another resource",
        ),
    ],
)
def test_pod_requests_match_kubernetes(parts: PodParts, millis: int) -> None:
    assert pod_requests(parts).cpu_millis == millis


@pytest.mark.parametrize(
    ("container", "infeasible", "millis"),
    [
        pytest.param(cpu("2", allocated=("1", "1")), False, 2000, id="request raised"),
        pytest.param(
            cpu("1", allocated=("2", "1")), False, 2000, id="request lowered, still running"
        ),
        pytest.param(cpu("1", allocated=("1", "3")), False, 3000, id="allocated, not yet running"),
        pytest.param(cpu("1", allocated=("2", None)), False, 2000, id="allocation not reported"),
        pytest.param(
            cpu("4", allocated=("1", "2")), True, 2000, id="infeasible: the request does not count"
        ),
        pytest.param(
            cpu("1", allocated=("1", "1")), True, 1000, id="infeasible, back to the old size"
        ),
        pytest.param(cpu("4"), True, 4000, id="infeasible, but no status"),
    ],
)
def test_container_requests_count_in_place_resize(
    container: Container, infeasible: bool, millis: int
) -> None:
    assert (
        pod_requests(PodParts(containers=[container], infeasible=infeasible)).cpu_millis == millis
    )


def test_resize_counts_for_sidecars_only_among_init_containers() -> None:
    sidecar, ordinary = (
        cpu("1", sidecar=True, allocated=("2", "2")),
        cpu("1", allocated=("9", "9")),
    )
    assert pod_requests(PodParts(init_containers=[sidecar])).cpu_millis == 2000
    assert pod_requests(PodParts(init_containers=[ordinary])).cpu_millis == 1000


def test_pod_level_resize_counts_running_resources() -> None:
    allocated_sums: tuple[Amounts, ...] = ({"cpu": 3000, "memory": 9}, cores("2"))
    parts = PodParts(
        containers=[cpu("1")], pod_level=cores("1"), pod_level_allocated=allocated_sums
    )
    assert pod_requests(parts) == Resources(cpu_millis=3000, pods=1)


def test_each_resource_is_summed_by_itself() -> None:
    parts = PodParts(
        containers=[Container({"cpu": 1000, "memory": 1024**3, "nvidia.com/gpu": 2})],
        init_containers=[Container({"memory": 2 * 1024**3, "ephemeral-storage": 10**9})],
        pod_level={"hugepages-2Mi": 4 * 1024**2, "nvidia.com/gpu": 9, "memory-like": 1},
    )
    assert pod_requests(parts) == Resources(
        cpu_millis=1000,
        memory_bytes=2 * 1024**3,
        ephemeral_bytes=10**9,
        pods=1,
        extended=(("hugepages-2Mi", 4 * 1024**2), ("nvidia.com/gpu", 2)),
    )


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "example.org/x"]),
    st.integers(0, 9),
)
CONTAINERS = st.builds(Container, AMOUNTS, restartable=st.booleans())


@given(st.lists(CONTAINERS, max_size=4), st.lists(CONTAINERS, max_size=5), AMOUNTS)
def test_requests_are_maximum_over_time(
    mains: list[Container], inits: list[Container], overhead: dict[str, int]
) -> None:
    """Compare the definition, moment by moment, with the running sums."""
    name = "memory"

    def requested(container: Container) -> int:
        return container.requests.get(name, 0)

    sidecars = [number for number, one in enumerate(inits) if one.restartable]
    moments = [
        requested(one) + sum(requested(inits[n]) for n in sidecars if n < number)
        for number, one in enumerate(inits)
    ]
    moments.append(sum(map(requested, mains)) + sum(requested(inits[n]) for n in sidecars))
    expected = max(moments) + overhead.get(name, 0)
    parts = PodParts(containers=mains, init_containers=inits, overhead=overhead)
    assert pod_requests(parts).memory_bytes == expected


@given(st.lists(CONTAINERS, max_size=4), CONTAINERS)
def test_added_container_never_lowers_requests(mains: list[Container], more: Container) -> None:
    before, after = (pod_requests(PodParts(containers=some)) for some in (mains, [*mains, more]))
    assert after.cpu_millis >= before.cpu_millis
    assert after.memory_bytes >= before.memory_bytes
    assert after.pods == before.pods == 1
