"""A background load of pods, which records the pods that it deletes itself."""

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
    """A thread that creates and deletes a few pods every second; nothing else may delete them."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api, self._chance = api, random.Random(seed)
        self._running, self._end = threading.Event(), threading.Event()
        self.known: dict[str, bool] = {}
        """Created pods, and whether the load has deleted them."""
        self._unsure: list[str] = []
        """Pods whose deletion was not acknowledged; it is retried."""
        self._number = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Run the load inside of the context."""
        self._running.set()
        try:
            yield
        finally:
            self._running.clear()

    def end(self) -> None:
        """End the thread."""
        self._end.set()
        self._running.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._end.is_set():
            self._running.wait()
            with contextlib.suppress(Exception):  # the load continues after errors
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
            self.known[name] = True  # before the response, which may be lost
            try:
                self._api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
            except Exception:
                self._unsure.append(name)
                raise
