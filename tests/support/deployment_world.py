"""A simulated Deployment whose pods are detached from their ReplicaSet and attached again."""

from collections.abc import Callable
from dataclasses import replace

from core.model.pod import Pod
from core.writes.costs import MOVE_COST
from sim.autoscaler import ScaleDown
from sim.simulated_load import HOUR_MS, Deployment, SimulatedLoad, amount
from sim.simulator import Simulator

SECOND_MS = 1000
MINUTE_MS = 60_000
STARTUP_MS = 10_000
DETACHED_MS = 5 * MINUTE_MS
SHAPE = amount(4000, 8192, 0, 110)
POD = amount(500, 64, 0)
WEB = Deployment("web", POD, ((0, 3),), startup_ms=STARTUP_MS)


class DeploymentWorld:
    """A Deployment, whose first pod is detached at DETACHED_MS if *detaches* is true."""

    def __init__(
        self, deployment: Deployment = WEB, *, detaches: bool = True, nodes: int = 3
    ) -> None:
        load = SimulatedLoad(
            "made", (SHAPE,) * nodes, (), HOUR_MS, MINUTE_MS, deployments=(deployment,)
        )
        self.simulator = Simulator(load, ScaleDown.NEVER, None, 1)
        self.deployments = self.simulator._deployments
        self.key = ""
        if detaches:
            self.at(DETACHED_MS, self._detach)

    def at(self, at_ms: int, act: Callable[[], object]) -> None:
        self.simulator.after(at_ms, lambda: (act(), None)[1])

    def _detach(self) -> None:
        pod = self.pods()[0]
        self.key = pod.key
        self.cost(pod, MOVE_COST)
        self.deployments.detach(pod.key)

    def cost(self, pod: Pod, cost: int | None) -> None:
        text = None if cost is None else str(cost)
        state = self.simulator.state
        state.replace_pod(
            replace(state.pods[pod.key], deletion_cost=text, deletion_cost_ours=text)
        )

    def attach(self) -> None:
        self.deployments.attach(self.key)

    def pods(self) -> list[Pod]:
        return self.deployments.pods("web")

    @property
    def names(self) -> list[str]:
        """Return the names of the pods without the name of the Deployment, detached ones last."""
        return [pod.name.removeprefix("web-").replace("-0000", "-") for pod in self.pods()]

    def run_until(self, at_ms: int) -> None:
        self.simulator._load = replace(self.simulator._load, duration_ms=at_ms)
        self.simulator.run()


def shown(world: DeploymentWorld) -> tuple[int, int, int]:
    """Return the pods, the updated pods and the available pods in the Deployment's status."""
    status = world.deployments.observed("web")
    return status.pods, status.updated, status.available
