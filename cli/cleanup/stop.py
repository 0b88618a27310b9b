"""Stop the controller, so that it marks no node while `ebb cleanup` runs."""

import asyncio
from typing import Final

from cli.cleanup.removals import Removals, warn
from controller.election import Leases
from core.model.errors import ConflictError, UnavailableError
from core.moves.objects import CONTROLLER
from kube.client import Client
from kube.stores.lease import Lease
from kube.stores.objects import TRIES_MAX
from kube.stores.scales import ScaleStore
from runtime.clock import Clock

STOP_SECONDS_MAX: Final = 180.0
"""Maximum time to wait for the Lease; a pod of the controller terminates within 30 s."""
FREE_SECONDS: Final = 10
"""A Lease that nobody has taken for this long stays free: a replica that still runs would have
taken it."""
POLL_SECONDS: Final = 1.0


async def stop_controller(
    client: Client, leases: Leases, namespace: str, clock: Clock, removals: Removals
) -> None:
    """Scale the Deployment of the controller to 0, and wait until no replica holds its Lease.

    A dry run only reports the scaling. *namespace*: namespace of Ebb. Raises: UnavailableError.
    """
    key = f"{namespace}/{CONTROLLER}"
    scales = ScaleStore(client)
    try:
        if await scales.read(namespace, CONTROLLER) is None:
            await _check_nobody_leads(leases)
            warn(
                f"deployment {key} does not exist, and nobody holds the Lease. If Ebb is "
                "installed in another namespace, use --ebb-namespace"
            )
        elif removals.dry_run or await _scale_to_zero(scales, namespace):
            removals.report("deployment", key, "scaled to 0")
    except UnavailableError as fault:
        raise UnavailableError(f"deployment {key}: {fault}. Nothing was cleaned up") from fault
    if not removals.dry_run:
        await wait_until_nobody_leads(leases, clock)


async def _check_nobody_leads(leases: Leases) -> None:
    lease = await leases.read()
    if lease is not None and lease.holder:
        raise UnavailableError(
            f"the Deployment does not exist, but the controller {lease.holder} holds the Lease. "
            "End this controller, and run the command again. If the controller has ended already, "
            "omit --stop-controller"
        )


async def _scale_to_zero(scales: ScaleStore, namespace: str) -> bool:
    """Scale the controller to 0; return False if it has no replicas already.

    Raises: ConflictError.
    """
    for _ in range(TRIES_MAX):
        scale = await scales.read(namespace, CONTROLLER)
        if scale is None or scale.replicas == 0:
            return False
        try:
            await scales.write(namespace, CONTROLLER, scale.version, 0)
        except ConflictError:
            continue
        return True
    raise ConflictError(f"another client keeps changing the Deployment {namespace}/{CONTROLLER}")


async def wait_until_nobody_leads(leases: Leases, clock: Clock) -> None:
    """Wait until no replica of the controller holds the Lease.

    A Lease counts as free when its holder has not renewed it for its duration, or when nobody has
    taken it for FREE_SECONDS. Only the clock of this machine is used. Raises: UnavailableError
    after STOP_SECONDS_MAX.
    """
    started = changed = clock.monotonic_seconds()
    before: Lease | None = None
    while (lease := await leases.read()) is not None:
        now = clock.monotonic_seconds()
        if before is None or lease.version != before.version:
            before, changed = lease, now
        free_after = lease.duration_seconds if lease.holder else FREE_SECONDS
        if now - changed >= free_after:
            return
        if now - started > STOP_SECONDS_MAX:
            who = lease.holder or "a replica of the controller"
            raise UnavailableError(
                f"{who} still holds the Lease of the controller {STOP_SECONDS_MAX:.0f} s after "
                "it was scaled to 0; find out what starts the controller again"
            )
        await asyncio.sleep(POLL_SECONDS)
