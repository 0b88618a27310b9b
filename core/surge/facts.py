"""Tell plans what they need to know of surge moves."""

from core.model.cluster import SurgeFacts
from core.surge.objects import SurgeObjects, consents
from core.surge.records import MoveRecords, MoveStep


def surge_facts(objects: SurgeObjects, records: MoveRecords, before: MoveRecords) -> SurgeFacts:
    """Return the facts for the next plan; *before*: the records at the plan before it."""
    deployments = objects.deployments
    moves = records.moves.values()
    moving = (deployments.get(move.deployment_key) for move in (*moves, *before.moves.values()))
    return SurgeFacts(
        allowed=frozenset(
            (one.namespace, one.replica_set) for one in deployments.values() if consents(one)
        ),
        moving=frozenset((one.namespace, one.replica_set) for one in moving if one is not None),
        replaced=frozenset(
            f"{move.namespace}/{move.pod}" for move in moves if move.step is MoveStep.RAISED
        ),
    )
