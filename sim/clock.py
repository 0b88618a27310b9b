"""Virtual time, as the programs' clock."""


class VirtualClock:
    """Stands still until it is told; implements core.edge.clock.Clock.

    Waits that are counted by it never end: views and passes are fed by hand.
    """

    def __init__(self) -> None:
        self.now_ms = 0

    def unix_seconds(self) -> int:
        """Return the virtual seconds."""
        return self.now_ms // 1000

    def monotonic_seconds(self) -> float:
        """Return the time at which all news are fresh."""
        return 0.0
