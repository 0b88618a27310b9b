"""docs/architecture.md names the files of two code paths; these tests run both and compare."""

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import aiohttp

from controller.loop import Loop
from controller.metrics import Metrics
from controller.reconciler import Reconciler
from controller.view import ClusterView
from core.config.programs import ControllerConfig, ExtenderConfig
from core.config.settings import Config, Mode, UsabilityMode
from core.marks.mark import Details, encode_details
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL, TAINT_KEY
from extender.app import make_app
from extender.metrics import Metrics as ExtenderMetrics
from extender.view import View
from kube.cluster_kinds import KINDS
from kube.decode.kinds import NODES, PODS
from kube.freshness import WatchSink
from kube.stores.objects import Store
from kube.watch import watch_objects
from serving import http
from tests.support.builders import UNLIMITED
from tests.support.clock import FakeClock
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import Json, node_object, pod_object
from tests.support.following import opened

ROOT = Path(__file__).parents[1]
ROOMS = "core|runtime|serving|kube|webhook|controller|extender"
OURS = re.compile(rf"{re.escape(str(ROOT))}/((?:{ROOMS})/.+\.py)")
FILES_MAX = 18
"""Maximum number of files on a path, so that readers can follow it."""
EVENT_ENDS: Final = {
    ("kube/watch.py", "lines"),
    ("kube/decode/kinds.py", "model_of"),
    ("controller/view.py", "became"),
    ("core/engine/snapshot.py", "__init__"),
    ("core/placement/packer.py", "try_place"),
    ("core/policies/cluster_threshold.py", "nominates"),
    ("core/writes/life_cycle.py", "due_transitions"),
    ("kube/client.py", "ask"),
}
"""Functions at the ends of the path; their callers on the stack are part of it."""
CALL_ENDS: Final = {
    ("serving/fast_path.py", "begin"),
    ("extender/wire.py", "pod_to_schedule"),
    ("extender/wire.py", "answer"),
}
NOW = 1_767_225_600


def on_the_page(title: str) -> list[str]:
    page = (ROOT / "docs" / "architecture.md").read_text()
    part = page.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE)


@contextmanager
def crossed(ends: set[tuple[str, str]]) -> Iterator[set[str]]:
    """Collect the project's files on the stack of each call of these functions, in any thread."""
    files: set[str] = set()
    numbers = {name for _, name in ends}

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name not in numbers:
            return
        found = OURS.fullmatch(frame.f_code.co_filename)
        if found is None or (found[1], frame.f_code.co_name) not in ends:
            return
        above: FrameType | None = frame
        while above is not None:
            if ours := OURS.fullmatch(above.f_code.co_filename):
                files.add(ours[1])
            above = above.f_back

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def ready(name: str, **metadata: Any) -> Json:
    made = node_object(name)
    made["metadata"] |= metadata
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


def marked(name: str) -> Json:
    details = Details(since=NOW, deadline=NOW + 9000, owner="me", policy="p", reason="r")
    annotations = {DETAILS_ANNOTATION: encode_details(details)}
    return ready(name, labels={MARK_LABEL: "PreferNoSchedule"}, annotations=annotations)


def asking(name: str, cpu: str, node: str | None) -> Json:
    made = pod_object(name, node=node, phase="Running" if node else "Pending")
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    if node is None:
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        made["status"]["conditions"] = [refused]
    return made


async def test_files_of_pod_event_match_architecture_page() -> None:
    config = Config(
        mode=Mode.ENFORCE,
        usable_capacity=UsabilityMode.ALL,
        budgets=UNLIMITED,
        controller=ControllerConfig(interval_seconds=3600),
    )
    view, metrics, clock = ClusterView(), Metrics(), FakeClock(NOW)
    async with FakeApi() as api, opened(api) as client:
        for node in (marked("a"), ready("b")):
            api.put(NODES.resource, node)
        api.put(PODS.resource, asking("there", "3", "b"))
        controller = Reconciler(config, Store(client, NODES), owner="me", metrics=metrics)
        tasks = [
            asyncio.create_task(
                watch_objects(client, kind, WatchSink(view, kind, view.freshness, clock, metrics))
            )
            for kind in KINDS
        ]
        for kind in KINDS:
            await api.watched(kind.resource)
        tasks.append(asyncio.create_task(Loop(view, controller, clock, metrics).run()))
        asyncio.get_running_loop().set_default_executor(
            ThreadPoolExecutor()
        )  # new threads have the profile function
        with crossed(EVENT_ENDS) as files:
            api.put(PODS.resource, asking("waits", "3500m", None))
            await api.until(lambda: api.count("patch") > 0)
        for task in tasks:
            task.cancel()
    page = on_the_page("From a pod event to an unmarked node")
    assert files == set(page)
    assert len(page) <= FILES_MAX


async def test_files_of_prioritize_call_match_architecture_page() -> None:
    view = View(ExtenderConfig(), TAINT_KEY)
    for kind in (NODES, PODS):
        view.freshness.alive(kind, 0.0)
    app = make_app(view, FakeClock(), ExtenderMetrics(), http.Health())
    server = http.Server(app, "127.0.0.1:0")
    await server.start()
    with crossed(CALL_ENDS) as files:
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{server.port}/prioritize"
            async with session.post(url, data=b'{"NodeNames":["a"]}') as response:
                assert response.status == 200
    await server.stop()
    assert files == set(on_the_page("From a prioritize call to its answer"))


def test_paths_on_architecture_page_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(rf"`((?:{ROOMS}|cli|tests)/[^`]*)`", page)
    assert [one for one in named if not (ROOT / one).exists()] == []
