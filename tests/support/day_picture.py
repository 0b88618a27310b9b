"""Write docs/day.png, cost and Pending time of a day: `python -m tests.support.day_picture`."""

from pathlib import Path

from sim import picture, waves
from sim.processes import run_all
from sim.scenario import AUTOSCALER, DEMO

PICTURE = Path(__file__).parents[2] / "docs" / "day.png"
SEED = 1


def main() -> None:
    load = waves.mixed(SEED, 1)
    scenarios = (AUTOSCALER, *DEMO)
    results = run_all(scenarios, load, seed=SEED, wire=False, on_progress=lambda *_: None)
    picture.draw(results, f"A simulated day, seed {SEED}", str(PICTURE))


if __name__ == "__main__":
    main()
