"""The configuration is reloaded while the controller runs."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from controller.config_reload import ACCEPTED, REFUSED, ConfigReload
from controller.metrics import Metrics
from controller.reconciler import Reconciler
from controller.view import ClusterView
from core.cluster.read_options import SCHEDULER_FIELD
from core.config.settings import Config, Mode
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from kube.decode.kinds import NODES, PODS
from kube.stores.events import EventType
from runtime.file_changes import FileChanges
from runtime.program import Start
from tests.support import builders
from tests.support.admission import NodeApi
from tests.support.clock import FakeClock

HEAD = "apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\n"


class Running:
    """A controller with a configuration file."""

    def __init__(self, path: Path) -> None:
        path.write_text(HEAD)
        self.path, self.metrics, self.clock = path, Metrics(), FakeClock()
        self.view = ClusterView()
        node = Node(name="n", allocatable=Resources(1000, 2**30, 0, 10))
        self.view.changed(NODES, node)
        self.controller = Reconciler(Config(), NodeApi(), owner="me", metrics=self.metrics)
        self.told: list[tuple[str, str, EventType]] = []
        self.config_reload = ConfigReload(
            str(path),
            self.controller,
            self.view,
            self.clock,
            self.metrics,
            lambda *event: self.told.append(event),
        )

    def good(self) -> float | None:
        return self.metrics.registry.get_sample_value("ebb_config_last_reload_successful")


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path / "ebb.yaml")


async def test_valid_file_is_applied_and_starts_reconciliation(running: Running) -> None:
    running.path.write_text(HEAD + "mode: enforce\nunneededTime: 5s\n")
    await running.config_reload.reload()
    assert running.controller.config == Config(mode=Mode.ENFORCE, unneeded_time_seconds=5)
    assert [(reason, of) for reason, _, of in running.told] == [(ACCEPTED, EventType.NORMAL)]
    assert running.view.wake.is_set()
    assert running.good() == 1


async def test_changed_sections_of_other_programs_are_ignored(running: Running) -> None:
    running.path.write_text(HEAD + "webhook: {certDir: /tls}\nextender: {certDir: /tls}\n")
    await running.config_reload.reload()
    assert [reason for reason, *_ in running.told] == [ACCEPTED]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: enforced\n", "mode: 'enforced'"),
        ("mode: [\n", "line"),
        ("clusterAutoscaler: {status: ca/other}\n", "clusterAutoscaler: changed"),
        ("mode: enforce\nmod: x\n", "mod: unknown field"),
    ],
)
async def test_invalid_file_is_rejected_and_changes_nothing(
    running: Running, text: str, message: str
) -> None:
    running.path.write_text(HEAD + text)
    await running.config_reload.reload()
    assert running.controller.config == Config()
    ((reason, note, of),) = running.told
    assert (reason, of) == (REFUSED, EventType.WARNING)
    assert message in note
    assert "\n" not in note
    assert running.good() == 0
    running.path.write_text(HEAD)
    await running.config_reload.reload()
    assert running.good() == 1


async def test_plan_of_changed_file_uses_its_schedulers(running: Running) -> None:
    running.view.changed(NODES, replace(running.view.nodes["n"], name="m"))
    for name in ("m", "n"):
        pod = builders.pod(name, name, 1, 1, unsupported=(SCHEDULER_FIELD,))
        running.view.changed(PODS, replace(pod, scheduler="own"))
    for schedulers, could in (("[default-scheduler]", "0 nodes"), ("[own]", "1 node")):
        running.path.write_text(HEAD + f"headroom: 0\nschedulers: {schedulers}\n")
        await running.config_reload.reload()
        plan = f"mode observe; {could} could be removed in the long run"
        assert running.told[-1][1] == f"using the changed file: {plan}"


class Broken(Pod):
    """A pod with which no plan can be made."""

    @property
    def movable(self) -> bool:
        raise ZeroDivisionError


async def test_file_is_rejected_when_no_plan_can_be_made(running: Running) -> None:
    running.view.changed(PODS, Broken(namespace="a", name="p"))
    running.path.write_text(HEAD + "mode: enforce\n")
    await running.config_reload.reload()
    assert running.controller.config == Config()
    assert running.told == [
        (
            REFUSED,
            (
                f"keeping the previous configuration: {running.path}: a plan with this "
                "configuration failed: ZeroDivisionError; see the log of ebb-controller"
            ),
            EventType.WARNING,
        )
    ]
    assert running.good() == 0
    running.view.replaced(PODS, [])
    await running.config_reload.reload()
    assert running.controller.config.mode is Mode.ENFORCE


async def test_missing_file_is_rejected(running: Running) -> None:
    running.path.unlink()
    await running.config_reload.reload()
    assert running.told[0][0] == REFUSED


async def test_file_is_read_outside_event_loop(running: Running) -> None:
    running.path.write_text("[")
    reload = asyncio.create_task(running.config_reload.reload())
    await asyncio.sleep(0)
    assert running.told == []
    await reload
    assert [reason for reason, _, _ in running.told] == [REFUSED]


async def test_changed_file_is_retried_until_it_is_accepted(tmp_path: Path) -> None:
    file, answers = tmp_path / "file", [True, False, False]
    file.write_text("one")
    tried = asyncio.Event()

    async def act() -> bool:
        if len(answers) == 1:
            tried.set()
        return answers.pop()

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(FileChanges([str(file)]).run(act, every_seconds=0.001))
        await asyncio.sleep(0)
        file.write_text("three")
        await tried.wait()
        task.cancel()
    assert answers == []


async def test_change_is_noticed_when_it_happens_before_watch_starts(
    running: Running,
) -> None:
    """Meanwhile the program connects to the cluster, which may run an exec plugin."""
    start = Start.read(str(running.path), None, {})
    running.path.write_text(HEAD + "mode: enforce\n")
    reloaded = asyncio.Event()

    async def reload() -> bool:
        done = await running.config_reload.reload()
        reloaded.set()
        return done

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(start.changes.run(reload, every_seconds=0.001))
        await reloaded.wait()
        task.cancel()
    assert running.controller.config.mode is Mode.ENFORCE


async def test_change_is_noticed_when_mounted_volume_is_swapped(tmp_path: Path) -> None:
    """The kubelet writes a new folder and replaces a symlink in the path."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ebb.yaml").write_text(name)
    link = tmp_path / "data"
    link.symlink_to("one")
    seen, watching = asyncio.Event(), asyncio.Event()

    async def act() -> bool:
        seen.set()
        return True

    async def watch() -> None:
        watching.set()
        await FileChanges([str(link / "ebb.yaml")]).run(act, every_seconds=0.001)

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(watch())
        await watching.wait()
        await asyncio.sleep(0)
        link.unlink()
        link.symlink_to("two")
        await seen.wait()
        task.cancel()


async def test_pause_in_changed_file_applies_from_next_reconciliation(running: Running) -> None:
    pod = builders.pod("p", "m", 1, 1)
    running.view.changed(NODES, replace(running.view.nodes["n"], name="m"))
    running.view.changed(PODS, pod)
    text = HEAD + "unneededTime: 0s\nheadroom: 0\ncooldown: {delayAfterAdd: 0s}\n"
    for more, codes in (("", []), ("pauseUntil: 1970-01-01T01:00:00Z\n", ["paused"]), ("", [])):
        running.path.write_text(text + more)
        await running.config_reload.reload()
        cluster = running.view.snapshot(running.controller.config.read_options)()
        found = running.controller.evaluate(cluster, 0).result
        assert [why.code for why in found.rate_limits.beginning.blockers] == codes
        assert running.controller.opens_at == (3600 if codes else None)
