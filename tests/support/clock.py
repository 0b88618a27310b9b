from dataclasses import dataclass


@dataclass
class FakeClock:
    """A clock that stands until it is moved."""

    seconds: float = 0.0

    def unix_seconds(self) -> int:
        return int(self.seconds)

    def monotonic_seconds(self) -> float:
        return self.seconds
