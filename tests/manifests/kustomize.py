"""The part of kustomize that manifests/ uses, so that tests do not need its binary.

It supports resources, components, patches (merged mappings, `$patch: delete`, JSON patches),
images and labels. An unknown field is an error, so that none is ignored.
"""

import copy
import functools
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import yaml

Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = ROOT / "manifests"
COMPONENTS: Final = (
    "extender",
    "cert-manager",
    "admission-policy",
    "pod-deletion-cost",
    "capacity-buffers",
    "eviction",
    "surge",
    "surge-delete",
    "prometheus-operator",
    "dashboard",
)
EXAMPLES: Final = ("self-managed", "managed")
KNOWN: Final = {"apiVersion", "kind", "resources", "components", "patches", "images", "labels"}


def render(name: str) -> list[Json]:
    """Return the objects of the base (""), of the base with a component, or of an example."""
    return copy.deepcopy(_rendered(name))


def with_components(*names: str) -> list[Json]:
    """Return the objects of the base with these components, in this order."""
    objects = _built(MANIFESTS, [])
    for name in names:
        objects = _built(MANIFESTS / "components" / name, objects)
    return objects


@functools.cache
def _rendered(name: str) -> list[Json]:
    if name in COMPONENTS:
        return with_components(name)
    return _built(MANIFESTS / "examples" / name if name else MANIFESTS, [])


def find(objects: list[Json], kind: str, name: str, namespace: str | None = None) -> Json:
    """Return the one object of this kind and name."""
    (found,) = (
        item
        for item in objects
        if (item["kind"], item["metadata"]["name"]) == (kind, name)
        and namespace in (None, item["metadata"].get("namespace"))
    )
    return found


def of_kind(objects: list[Json], *kinds: str) -> list[Json]:
    """Return all objects of these kinds."""
    return [item for item in objects if item["kind"] in kinds]


def documents(path: Path) -> list[Json]:
    """Read a file of YAML documents."""
    return copy.deepcopy(_parsed(path))


@functools.cache
def _parsed(path: Path) -> list[Json]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def _built(folder: Path, before: list[Json]) -> list[Json]:
    (found,) = documents(folder / "kustomization.yaml")
    assert set(found) <= KNOWN, folder
    assert found["kind"] == (
        "Component" if folder.parent.name == "components" else "Kustomization"
    )
    objects = copy.deepcopy(before)
    for name in found.get("resources", ()):
        path = folder / name
        objects += _built(path.resolve(), []) if path.is_dir() else documents(path)
    for name in found.get("components", ()):
        objects = _built((folder / name).resolve(), objects)
    for patch in found.get("patches", ()):
        objects = _patched(objects, patch)
    for image in found.get("images", ()):
        _set_image(objects, image)
    for label in found.get("labels", ()):
        _set_labels(objects, label)
    return objects


def _patched(objects: list[Json], patch: Json) -> list[Json]:
    change = yaml.safe_load(patch["patch"])
    if "target" in patch:
        targets = _selected(objects, patch["target"])
    else:
        targets = [_named(objects, change)]
    if isinstance(change, list):
        for target, operation in product(targets, change):
            _apply(target, operation)
    elif change.get("$patch") == "delete":
        return [item for item in objects if not any(item is target for target in targets)]
    else:
        for target in targets:
            _merge(target, change)
    return objects


def _named(objects: list[Json], change: Json) -> Json:
    """Return the object that a patch without a target names; kustomize too fails without it."""
    metadata = change["metadata"]
    found = find(objects, change["kind"], metadata["name"], metadata.get("namespace"))
    assert found["apiVersion"] == change["apiVersion"]
    return found


def _selected(objects: list[Json], target: Json) -> list[Json]:
    """Return the objects that a target selects; as in kustomize, there may be none."""
    if set(target) == {"labelSelector"}:
        key, _, value = target["labelSelector"].partition("=")
        return [one for one in objects if one["metadata"].get("labels", {}).get(key) == value]
    assert set(target) == {"kind", "name"}
    return [
        one
        for one in of_kind(objects, target["kind"])
        if one["metadata"]["name"] == target["name"]
    ]


def _apply(target: Any, operation: Json) -> None:
    *way, last = operation["path"].strip("/").split("/")
    for step in way:
        target = target[int(step) if isinstance(target, list) else step]
    if isinstance(target, list):
        assert (operation["op"], last) == ("add", "-")
        target.append(operation["value"])
    else:
        assert operation["op"] == ("replace" if last in target else "add")
        target[last] = operation["value"]


def _merge(target: Json, change: Json) -> None:
    for name, value in change.items():
        if isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        else:
            assert not isinstance(value, list), "how lists merge depends on the kind"
            target[name] = value


def _set_image(objects: list[Json], image: Json) -> None:
    assert set(image) <= {"name", "newTag"}
    for container in containers(objects):
        if container["image"].partition(":")[0] == image["name"]:
            container["image"] = f"{image['name']}:{image['newTag']}"


def _set_labels(objects: list[Json], label: Json) -> None:
    assert set(label) == {"pairs", "includeTemplates"}
    for item in objects:
        item["metadata"].setdefault("labels", {}).update(label["pairs"])
    for template in templates(objects):
        template["metadata"]["labels"].update(label["pairs"])


def templates(objects: list[Json]) -> Iterator[Json]:
    """Yield the pod template of each workload."""
    for item in of_kind(objects, "Deployment"):
        yield item["spec"]["template"]


def containers(objects: list[Json]) -> Iterator[Json]:
    """Yield every container."""
    for template in templates(objects):
        yield from template["spec"]["containers"]
