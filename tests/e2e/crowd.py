"""Pods that come and go while things break, and who took each of them away."""

import contextlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.e2e.api import Api
from tests.e2e.objects import PODS, pod

PODS_MAX: Final = 24
PAUSE_SECONDS: Final = 0.15


class Crowd:
    """Pods that come and go, a few every second; their owner alone takes them away."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api, self._chance = api, random.Random(seed)
        self._running, self._end = threading.Event(), threading.Event()
        self.known: dict[str, bool] = {}
        """Pods whose creation was answered, and whether the load itself has deleted them."""
        self._unsure: list[str] = []
        """Pods whose deletion was not answered: once more, or they would stay for ever."""
        self._number = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Come and go for a while."""
        self._running.set()
        try:
            yield
        finally:
            self._running.clear()

    def end(self) -> None:
        """Stop for good."""
        self._end.set()
        self._running.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._end.is_set():
            self._running.wait()
            with contextlib.suppress(Exception):  # whatever the API server says, it goes on
                self._step()
            self._end.wait(PAUSE_SECONDS)

    def _step(self) -> None:
        alive = [name for name, deleted in self.known.items() if not deleted]
        if len(alive) < PODS_MAX and self._chance.random() < 0.55:
            self._number += 1
            name = f"load-{self._number}"
            self._api.create(PODS, pod(name, cpu=f"{self._chance.choice((100, 300, 800))}m"))
            self.known[name] = False
        elif alive or self._unsure:
            name = self._unsure.pop() if self._unsure else self._chance.choice(alive)
            self.known[name] = True  # before the answer, which may get lost
            try:
                self._api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
            except Exception:
                self._unsure.append(name)
                raise
