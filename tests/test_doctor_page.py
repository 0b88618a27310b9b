"""docs/doctor.md has every check, every kind that is read, and links that exist."""

import re
from pathlib import Path

import yaml

from cli.doctor.checks import CHECKS
from cli.input.setup import SETUP_KINDS
from kube.decode.kinds import DAEMON_SETS, DEPLOYMENTS
from tests.support import doctor_page
from tests.support.pages import anchors

ROOT = Path(__file__).parents[1]
TEXT = doctor_page.PAGE.read_text("utf-8")


def test_page_has_current_table_and_example() -> None:
    assert doctor_page.written(TEXT) == TEXT, "make fix writes it anew"


def test_documented_clusterrole_allows_all_kinds_of_setup() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    rules = yaml.safe_load(text)["rules"]
    found = {(rule["apiGroups"][0], one) for rule in rules for one in rule["resources"]}
    assert all(rule.keys() == {"apiGroups", "resources", "verbs"} for rule in rules)
    assert all(rule["verbs"] == ["list"] for rule in rules)
    assert found == {(kind.group, kind.resource) for kind in SETUP_KINDS}


def test_documented_dumps_have_all_kinds_of_setup() -> None:
    named = [one for kinds in re.findall(r"kubectl get (\S+) ", TEXT) for one in kinds.split(",")]
    short = {DEPLOYMENTS.resource: DEPLOYMENTS.short}
    in_plan = {"pods"}
    kinds = {short.get(kind.resource, kind.resource) for kind in SETUP_KINDS} - in_plan
    assert set(named) >= kinds | {DAEMON_SETS.short}


def test_links_in_fixes_and_hints_exist() -> None:
    sources = [path.read_text("utf-8") for path in (ROOT / "cli").glob("doctor/*.py")]
    # Long texts are split over lines.
    joined = "".join(re.sub(r'"\s*f?"', "", one) for one in sources)
    found = re.findall(r"(docs/[a-z-]+\.md)(?:#([a-z0-9-]+))?", joined)
    assert len(found) > len(CHECKS) // 2
    for page, anchor in found:
        assert (ROOT / page).is_file(), page
        assert not anchor or anchor in anchors(ROOT / page), f"{page}#{anchor}"
