"""Write a small trace of instances with owners, and the instance types beside it."""

import json
from pathlib import Path
from typing import Any

from sim.history.instances import TYPES_FILE

HEAD = (
    "instance_sn,app_name,cpu_request,gpu_request,memory_request,"
    "creation_time,scheduled_time,deletion_time\n"
)
ROWS = """a-0,a,48,0,240.0,,,LAST
a-1,a,48,0,240.0,,,
a-2,a,48,0,240.0,3600.0,3660.0,
b-0,b,8,1,40.5,10,12,20
"""


def node_type(name: str, cpu: str, memory: str, price: float, **more: Any) -> dict[str, Any]:
    def offered(capacity: str, price: float) -> dict[str, Any]:
        key = "karpenter.sh/capacity-type"
        return {"Price": price, "Requirements": [{"key": key, "values": [capacity]}]}

    return {
        "name": name,
        "offerings": [offered("spot", price / 2), offered("on-demand", price)],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": cpu, "memory": memory, "pods": "110"},
        **more,
    }


TYPES = [
    node_type("small", "32", "64Gi", 1.0),
    node_type("m-96", "96", "768Gi", 3.2),
    node_type("m-64", "64", "512Gi", 2.15),
    node_type("arm", "96", "768Gi", 1.0, architecture="arm64"),
    node_type("windows", "96", "768Gi", 1.0, operatingSystems=["windows"]),
]


def write_trace(folder: Path, last_seconds: int = 7200) -> Path:
    """Write both files; return that of the instances. The last one is deleted at the end."""
    file = folder / "trace.csv"
    file.write_text(HEAD + ROWS.replace("LAST", str(last_seconds)))
    (folder / TYPES_FILE).write_text(json.dumps(TYPES))
    return file
