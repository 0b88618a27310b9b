"""Ebb in another namespace than `ebb-system`, set by an overlay."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from core.config.settings import Mode
from kube.target import NAMESPACE
from tests.e2e.api import Api, Json
from tests.e2e.install import (
    WRITE_POLICY_KINDS,
    apply,
    config,
    ending,
    guarded,
    overlay,
    point,
    port_of,
    start_program,
)
from tests.e2e.objects import add_nodes
from tests.e2e.plane import ROOT, Plane

ELSEWHERE = "node-compaction"
DOCUMENT = (ROOT / "docs" / "install-reference.md").read_text("utf-8")
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.fixture
def folder(plane: Plane, tmp_path: Path) -> Iterator[str]:
    """Return the folder of an overlay that has been applied."""
    overlay(tmp_path, namespace=ELSEWHERE)
    apply(plane, str(tmp_path), ELSEWHERE)
    yield str(tmp_path)
    plane.kubectl("delete", "--ignore-not-found", "-k", str(tmp_path))
    assert "ebb-" not in plane.kubectl("get", WRITE_POLICY_KINDS, "-o", "name")


def test_documented_overlay_replaces_namespace_everywhere(plane: Plane, tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yaml\n([^`]*^namespace: [^`]*)^```", DOCUMENT, re.MULTILINE)
    (tmp_path / "ebb").symlink_to(ROOT)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(text)
    found = plane.kubectl("kustomize", str(mine))
    assert ELSEWHERE in found
    assert NAMESPACE not in found


@pytest.mark.usefixtures("folder")
def test_controller_marks_and_reports_events_in_other_namespace(plane: Plane, api: Api) -> None:
    settings = config(mode=Mode.ENFORCE, usableCapacity="all")
    point(plane, port_of(settings))
    started = [
        start_program(plane, module, settings, namespace=ELSEWHERE)
        for module in ("controller", "webhook")
    ]

    def told(found: Mapping[str, Json]) -> bool:
        marked = (one for one in found.values() if one["reason"] == "NodeMarked")
        return any(one["regarding"]["name"].startswith("elsewhere") for one in marked)

    with ending(plane, *started):
        for ebb in started:
            ebb.wait_ready()
        add_nodes(api, "elsewhere-a", "elsewhere-b")
        api.wait(EVENTS, told)
        assert [ebb.metric("ebb_event_write_failures_total") for ebb in started] == [0, 0]
        guarded(plane, ELSEWHERE, "elsewhere-a")
