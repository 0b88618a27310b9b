"""The picture of cost over moved pods."""

from pathlib import Path

from sim.picture import MovesPoint, draw_moves

POINTS = [
    MovesPoint("MostAllocated", 0, 190_000.0, line=False),
    MovesPoint("autoscaler", 228, 154_000.0, line=False),
    MovesPoint("Ebb, no moves", 0, 165_000.0, line=True),
    MovesPoint("maxPerHour: 200", 155, 152_000.0, line=True),
]


def test_picture_of_moves_names_every_point(tmp_path: Path) -> None:
    file = tmp_path / "moves.svg"
    draw_moves(POINTS, "Cost and moved pods", str(file))
    drawn = file.read_text()
    assert all(f"<!-- {one.name} -->" in drawn for one in POINTS)
