"""What the publisher of CapacityBuffers does, as the leader reports it."""

from enum import StrEnum


class Publishing(StrEnum):
    """Whether Ebb publishes the expected pods as CapacityBuffers, or why not."""

    UNKNOWN = "unknown"
    """The first reconciliation, or the answer about RBAC, is missing."""
    OBSERVE = "observe"
    """The mode is observe."""
    FORBIDDEN = "forbidden"
    """RBAC does not allow it."""
    ABSENT = "absent"
    """The cluster has no CapacityBuffers, or RBAC does not allow reading them."""
    PUBLISHED = "published"
