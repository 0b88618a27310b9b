"""What may break on a control plane: each for so many seconds, under a load."""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from tests.e2e.install import REGISTRATION, SECRET
from tests.e2e.line import State
from tests.e2e.objects import NODES
from tests.e2e.plane import until
from tests.e2e.replica import Replica
from tests.e2e.town import Town, away, marked
from webhook.certs import ROTATE_ANNOTATION

Trouble = Callable[[Town, float], None]


def killed_amid_marks(town: Town, seconds: float) -> None:
    """Kill the leader when some of many nodes are marked; the other one takes over."""
    del seconds
    town.fill()
    leader = town.leader()
    with leader.line.be(State.SLOW):
        town.empty()
        town.api.wait(NODES, lambda found: any(map(marked, found.values())))
        leader.kill()
    town.other(leader).ebb.get("/livez")
    leader.restart()


def all_killed(town: Town, seconds: float) -> None:
    """Kill every program of ours at once."""
    _kill(town, seconds, *town.programs)


def controllers_killed(town: Town, seconds: float) -> None:
    """Kill both controllers: while none runs, nobody writes a mark."""
    _kill(town, seconds, *town.controllers)


def webhooks_killed(town: Town, seconds: float) -> None:
    """Kill both webhooks: the controller writes the taints of new marks."""
    _kill(town, seconds, *town.webhooks)


def extender_killed(town: Town, seconds: float) -> None:
    """Kill the extender: the scheduler places pods without its scores."""
    _kill(town, seconds, town.extender)


def _kill(town: Town, seconds: float, *whose: Replica) -> None:
    """Kill programs under load, and start them again in an order that chance decides."""
    with town.crowd.on():
        time.sleep(seconds / 4)
        for one in whose:
            one.kill()
        time.sleep(seconds / 4)
        for one in town.chance.sample(whose, len(whose)):
            one.restart()


def webhook_asleep(town: Town, seconds: float) -> None:
    """Stop the webhook that is called: each write of a marked Node waits for the timeout."""
    with town.crowd.on():
        town.webhook.ebb.program.send(signal.SIGSTOP)
        time.sleep(seconds)
        town.webhook.ebb.program.send(signal.SIGCONT)


def extender_asleep(town: Town, seconds: float) -> None:
    """Stop the extender: each pod waits for the timeout of the call."""
    with town.crowd.on():
        town.extender.ebb.program.send(signal.SIGSTOP)
        time.sleep(seconds)
        town.extender.ebb.program.send(signal.SIGCONT)


def api_server_away(town: Town, seconds: float) -> None:
    with town.crowd.on(), away(town, "kube-apiserver"):
        time.sleep(seconds)


def etcd_away(town: Town, seconds: float) -> None:
    with town.crowd.on(), away(town, "etcd"):
        time.sleep(seconds)


def _lines(town: Town, state: State, seconds: float, *whose: Replica) -> None:
    with town.crowd.on(), ExitStack() as lines:
        for one in whose:
            lines.enter_context(one.line.be(state))
        time.sleep(seconds)


def watches_cut(town: Town, seconds: float) -> None:
    _lines(town, State.CUT, seconds, *town.programs)


def leaders_line_hangs(town: Town, seconds: float) -> None:
    """It must stop leading before the other one begins; what it has sent may arrive later."""
    _lines(town, State.HANGING, max(seconds, 10), town.leader())


def everything_hangs(town: Town, seconds: float) -> None:
    _lines(town, State.HANGING, seconds, *town.programs)


def slow(town: Town, seconds: float) -> None:
    _lines(town, State.SLOW, seconds, *town.programs)


def throttled(town: Town, seconds: float) -> None:
    _lines(town, State.THROTTLED, seconds, *town.programs)


def broken(town: Town, seconds: float) -> None:
    _lines(town, State.BROKEN, seconds, *town.programs)


def flapping(town: Town, seconds: float) -> None:
    """Change how the lines are, every second, as chance has it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        whose = town.chance.sample(town.programs, town.chance.randint(1, len(town.programs)))
        _lines(town, town.chance.choice(list(State)), town.chance.uniform(0.2, 1.5), *whose)


def tokens_rotated(town: Town, seconds: float) -> None:
    """Give every program a new token and make the old one invalid, then cut all watches."""
    programs = town.programs
    with town.crowd.on():
        ends = [one.rotate_token() for one in programs]
        time.sleep(seconds / 4)
        for end in ends:
            end()
    _lines(town, State.CUT, seconds / 8, *programs)


def certificates_rotated(town: Town, seconds: float) -> None:
    """Begin a new CA under load."""
    first = town.api.get(SECRET)["data"]["ca.crt"]
    with town.crowd.on():
        town.api.merge(SECRET, {"metadata": {"annotations": {ROTATE_ANNOTATION: "now"}}})
        until(lambda: town.api.get(SECRET)["data"]["ca.crt"] != first, "a new CA signs")
        time.sleep(seconds / 4)


def two_webhooks_start_into_an_empty_secret(town: Town, seconds: float) -> None:
    """Empty the Secret and the registration's bundle while no webhook runs; start both at once."""
    del seconds
    for one in town.webhooks:
        one.kill()
    found = town.api.get(SECRET)
    town.api.call("PUT", SECRET, {**found, "data": None})
    registration = town.api.get(REGISTRATION)
    registration["webhooks"][0]["clientConfig"].pop("caBundle", None)
    town.api.call("PUT", REGISTRATION, registration)
    starts = [threading.Thread(target=one.restart) for one in town.webhooks]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    for one in town.webhooks:
        one.ebb.wait_ready()
    assert town.api.get(SECRET)["data"]["ca.crt"]


TROUBLES: Final[tuple[Trouble, ...]] = (
    killed_amid_marks,
    all_killed,
    controllers_killed,
    webhooks_killed,
    webhook_asleep,
    extender_killed,
    extender_asleep,
    api_server_away,
    etcd_away,
    watches_cut,
    leaders_line_hangs,
    everything_hangs,
    slow,
    throttled,
    broken,
    flapping,
    tokens_rotated,
    certificates_rotated,
    two_webhooks_start_into_an_empty_secret,
)
