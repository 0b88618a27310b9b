"""Random claims with bound volumes, and CSINodes with attach limits."""

import random

from tests.e2e.api import Json
from tests.e2e.drawn import HOSTNAME, REGION, ZONE, Drawn, name_of

DISK, NAS = "disk.example.org", "nas.example.org"
"""CSI drivers with and without attach limits."""


def csi_node(chance: random.Random, name: str) -> Json:
    """Return the CSINode of a node; drivers may be missing."""
    drivers: list[Json] = []
    if chance.random() < 0.85:
        drivers.append(
            {"name": DISK, "nodeID": name, "allocatable": {"count": chance.choice((2, 3, 5))}}
        )
    if chance.random() < 0.7:
        drivers.append({"name": NAS, "nodeID": name})
    for driver in drivers:
        driver["topologyKeys"] = []
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
    return {**kind, "metadata": {"name": name}, "spec": {"drivers": drivers}}


def left_attached(chance: random.Random, drawn: Drawn) -> None:
    """Add volumes that are attached to some of the nodes although no pod uses them any more."""
    for node in map(name_of, drawn.nodes):
        if chance.random() < 0.6:
            continue
        name = f"{node}-left"
        drawn.volumes.append({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "csi": {"driver": DISK, "volumeHandle": name},
                "storageClassName": "left",
            },
        })  # fmt: skip
        drawn.attachments.append({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": name},
            "spec": {
                "attacher": DISK,
                "nodeName": node,
                "source": {"persistentVolumeName": name},
            },
        })  # fmt: skip


def own_claim(chance: random.Random, drawn: Drawn, pod: Json) -> list[str]:
    """Return the names of one or two claims that only this pod uses."""
    names = [f"{name_of(pod)}-{number}" for number in range(chance.choice((1, 1, 2)))]
    mode = chance.choice(("ReadWriteOnce", "ReadWriteMany"))
    return [_claim(chance, drawn, pod, name, mode) for name in names]


def shared_claim(chance: random.Random, drawn: Drawn, pod: Json) -> list[str]:
    """Return the name of a claim that all pods of the template share."""
    name = f"{pod['metadata']['labels']['app']}-shared"
    mode = chance.choice((*["ReadWriteMany"] * 4, "ReadWriteOncePod", "ReadWriteOnce"))
    return [_claim(chance, drawn, pod, name, mode)]


def _claim(chance: random.Random, drawn: Drawn, pod: Json, name: str, mode: str) -> str:
    """Add a claim and its volume if they are missing; return the name of the claim."""
    namespace, full = pod["metadata"]["namespace"], f"s{drawn.seed}-{name}"
    if any(name_of(one) == full for one in drawn.claims):
        return full
    size = {"storage": "1Gi"}
    common = {"accessModes": [mode], "storageClassName": ""}
    drawn.claims.append({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": namespace, "name": full},
        "spec": {**common, "volumeName": full, "resources": {"requests": size}},
    })  # fmt: skip
    drawn.volumes.append({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": full, "labels": _volume_labels(chance)},
        "spec": {
            **common,
            "capacity": size,
            "claimRef": {"namespace": namespace, "name": full},
            "csi": {"driver": chance.choice((DISK, DISK, NAS)), "volumeHandle": full},
            **_volume_affinity(chance, drawn),
        },
    })  # fmt: skip
    return full


def _volume_labels(chance: random.Random) -> dict[str, str]:
    labels: dict[str, str] = {}
    if chance.random() < 0.12:
        key = chance.choice((ZONE, ZONE, "failure-domain.beta.kubernetes.io/zone"))
        labels[key] = chance.choice(("a", "b", "a__b", "b__c"))
    if chance.random() < 0.05:
        labels[REGION] = "north"
    return labels


def _volume_affinity(chance: random.Random, drawn: Drawn) -> Json:
    if chance.random() < 0.8:
        return {}
    hosts = [name_of(one) for one in drawn.nodes]
    key, values = chance.choice((
        (ZONE, chance.sample("abc", 2)),
        (HOSTNAME, chance.sample(hosts, 4)),
        ("disk", ["ssd"]),
    ))  # fmt: skip
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
