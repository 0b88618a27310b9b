"""Faults of programs, connections and credentials, each for some seconds under load."""

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


def leader_killed_while_marking(town: Town, seconds: float) -> None:
    """Kill the leader after it has marked some of many nodes; the other controller takes over."""
    del seconds
    town.fill()
    leader = town.leader()
    with leader.line.be(State.SLOW):
        town.empty()
        town.api.wait(NODES, lambda found: any(map(marked, found.values())))
        leader.kill()
    town.other(leader).ebb.get("/livez")
    leader.restart()


def all_programs_killed(town: Town, seconds: float) -> None:
    """Kill every program of Ebb at once."""
    _kill(town, seconds, *town.programs)


def controllers_killed(town: Town, seconds: float) -> None:
    """Kill both controllers; no marks are written meanwhile."""
    _kill(town, seconds, *town.controllers)


def webhooks_killed(town: Town, seconds: float) -> None:
    """Kill both webhooks; the controller writes the taints of new marks."""
    _kill(town, seconds, *town.webhooks)


def extender_killed(town: Town, seconds: float) -> None:
    """Kill the extender; the scheduler binds pods without its scores."""
    _kill(town, seconds, town.extender)


def _kill(town: Town, seconds: float, *whose: Replica) -> None:
    """Kill programs under load, and restart them in random order."""
    with town.crowd.on():
        time.sleep(seconds / 4)
        for one in whose:
            one.kill()
        time.sleep(seconds / 4)
        for one in town.chance.sample(whose, len(whose)):
            one.restart()


def webhook_paused(town: Town, seconds: float) -> None:
    """Pause the webhook; each write of a marked Node waits for the timeout."""
    with town.crowd.on():
        town.webhook.ebb.program.send(signal.SIGSTOP)
        time.sleep(seconds)
        town.webhook.ebb.program.send(signal.SIGCONT)


def extender_paused(town: Town, seconds: float) -> None:
    """Pause the extender; each pod waits for the timeout of the call."""
    with town.crowd.on():
        town.extender.ebb.program.send(signal.SIGSTOP)
        time.sleep(seconds)
        town.extender.ebb.program.send(signal.SIGCONT)


def api_server_down(town: Town, seconds: float) -> None:
    with town.crowd.on(), away(town, "kube-apiserver"):
        time.sleep(seconds)


def etcd_down(town: Town, seconds: float) -> None:
    with town.crowd.on(), away(town, "etcd"):
        time.sleep(seconds)


def _lines(town: Town, state: State, seconds: float, *whose: Replica) -> None:
    with town.crowd.on(), ExitStack() as lines:
        for one in whose:
            lines.enter_context(one.line.be(state))
        time.sleep(seconds)


def watches_cut(town: Town, seconds: float) -> None:
    _lines(town, State.CUT, seconds, *town.programs)


def connection_of_leader_hangs(town: Town, seconds: float) -> None:
    """Delay all requests of the leader; it must stop leading before the other begins."""
    _lines(town, State.HANGING, max(seconds, 10), town.leader())


def all_connections_hang(town: Town, seconds: float) -> None:
    _lines(town, State.HANGING, seconds, *town.programs)


def api_calls_slow(town: Town, seconds: float) -> None:
    _lines(town, State.SLOW, seconds, *town.programs)


def api_calls_throttled(town: Town, seconds: float) -> None:
    _lines(town, State.THROTTLED, seconds, *town.programs)


def api_calls_failing(town: Town, seconds: float) -> None:
    _lines(town, State.BROKEN, seconds, *town.programs)


def connections_flapping(town: Town, seconds: float) -> None:
    """Change the state of random connections every second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        whose = town.chance.sample(town.programs, town.chance.randint(1, len(town.programs)))
        _lines(town, town.chance.choice(list(State)), town.chance.uniform(0.2, 1.5), *whose)


def tokens_rotated(town: Town, seconds: float) -> None:
    """Mount new tokens, invalidate the old tokens, then cut all watches."""
    programs = town.programs
    with town.crowd.on():
        ends = [one.rotate_token() for one in programs]
        time.sleep(seconds / 4)
        for end in ends:
            end()
    _lines(town, State.CUT, seconds / 8, *programs)


def certificates_rotated(town: Town, seconds: float) -> None:
    """Rotate the CA under load."""
    first = town.api.get(SECRET)["data"]["ca.crt"]
    with town.crowd.on():
        town.api.merge(SECRET, {"metadata": {"annotations": {ROTATE_ANNOTATION: "now"}}})
        until(lambda: town.api.get(SECRET)["data"]["ca.crt"] != first, "a new CA signs")
        time.sleep(seconds / 4)


def webhooks_started_with_empty_secret(town: Town, seconds: float) -> None:
    """Empty the Secret and the caBundle while no webhook runs; then start both at once."""
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
    leader_killed_while_marking,
    all_programs_killed,
    controllers_killed,
    webhooks_killed,
    webhook_paused,
    extender_killed,
    extender_paused,
    api_server_down,
    etcd_down,
    watches_cut,
    connection_of_leader_hangs,
    all_connections_hang,
    api_calls_slow,
    api_calls_throttled,
    api_calls_failing,
    connections_flapping,
    tokens_rotated,
    certificates_rotated,
    webhooks_started_with_empty_secret,
)
