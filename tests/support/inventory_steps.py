"""Random events of an inventory, for laws about it."""

from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import PODS
from tests.support.builders import pod


def carry_out(inventory: Inventory, step: str, name: str, number: int) -> bool:
    """Change pods of the inventory; return False if *step* is none of these.

    (c)hange a pod, (g)arbled object, (d)elete a pod, (l)ist one pod. *number* makes pods differ.
    """
    match step:
        case "c":
            inventory.changed(PODS, pod(name, "n", number, 1))
        case "g":
            inventory.refused(PODS, f"d/{name}", "odd")
        case "d":
            inventory.deleted(PODS, f"d/{name}")
        case "l":
            inventory.replaced(PODS, [pod(name, None, number, 1)])
        case _:
            return False
    return True
