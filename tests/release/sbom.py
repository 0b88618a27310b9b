"""Write a software bill of materials (SBOM) of the runtime packages: CycloneDX 1.6 as JSON."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

Json = dict[str, Any]

PIN: Final = re.compile(
    r"^([a-z0-9][a-z0-9.-]*)==(\S+)[^\n]*\\\n((?:    --hash=\S+[^\n]*\n)+)", re.MULTILINE
)
DIGEST: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def sbom(name: str, version: str, lock: str, epoch_seconds: int) -> str:
    """Return the SBOM of this version, with one component for each locked package.

    The licenses come from the packages in the current environment; a package that is missing
    there, or has another version, has none in the SBOM.
    """
    document: Json = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, f'{name} {version} {lock}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch_seconds, UTC).isoformat(),
            "component": _component("application", name, version),
        },
        "components": [
            _component("library", package, pinned) | _files(package, pinned, hashes)
            for package, pinned, hashes in PIN.findall(lock)
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _component(kind: str, name: str, version: str) -> Json:
    purl = f"pkg:pypi/{name}@{version}"
    found = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    licenses = list(_licenses(name, version))
    return found | ({"licenses": licenses} if licenses else {})


def _files(name: str, version: str, hashes: str) -> Json:
    """Return the hashes of all wheels and archives of a package.

    Hashes of a component would be those of one file, but each platform has its own wheel.
    """
    digests = [{"alg": "SHA-256", "content": digest} for digest in DIGEST.findall(hashes)]
    url = f"pkg:pypi/{name}@{version}"
    return {"externalReferences": [{"type": "distribution", "url": url, "hashes": digests}]}


def _licenses(name: str, version: str) -> Iterator[Json]:
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return
    if found["Version"] != version:
        return
    if expression := _field(found, "License-Expression"):
        yield {"expression": expression}
    elif text := _field(found, "License").strip():
        # Some packages have the whole text of the license in this field.
        yield {"license": {"name": text.splitlines()[0].strip()}}
    else:
        for classifier in found.get_all("Classifier", []):
            if classifier.startswith("License ::"):
                yield {"license": {"name": classifier.rpartition(" :: ")[2]}}


def _field(found: PackageMetadata, field: str) -> str:
    return next(iter(found.get_all(field, [])), "")
