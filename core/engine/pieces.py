"""What a pass leaves behind goes piece by piece.

While an object is freed, and all that hangs on it alone, no other thread runs: the lists of a plan
over 150,000 pods take ten milliseconds, in which reviews would wait.
"""


def let_go(pieces: list[object]) -> None:
    """Free each for itself; nobody else may hold what they hung on."""
    while pieces:
        pieces.pop()
