"""A client of the API server: plain calls, and waiting on watches."""

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import urllib3

from tests.e2e.pki import Signed

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
WAIT_SECONDS = 30.0
FOLLOWED_SECONDS_MAX = 24 * 3600.0


class RefusedError(Exception):
    """The API server has rejected a call."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"{status}: {body.get('message', body)}")
        self.status = status


class Api:
    """Calls as one user."""

    def __init__(self, url: str, ca: str, user: Signed | None = None, token: str = "") -> None:
        self._pool = urllib3.PoolManager(
            ca_certs=ca,
            cert_file=str(user.certificate) if user else None,
            key_file=str(user.key) if user else None,
            retries=False,
            maxsize=16,
            timeout=30,
        )
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "application/json",
        headers: Sequence[tuple[str, str]] = (),
    ) -> Json:
        """Send a request, and return the decoded response. Raises: RefusedError."""
        response = self._pool.request(
            method,
            self._url + path,
            body=None if body is None else json.dumps(body),
            headers=urllib3.HTTPHeaderDict(
                [("Content-Type", content), *self._headers.items(), *headers]
            ),
        )
        try:
            found = json.loads(response.data) if response.data else {}
        except ValueError:
            found = {"message": response.data.decode(errors="replace")}
        if response.status >= 300:
            raise RefusedError(response.status, found)
        return found

    def text(self, path: str) -> str:
        """GET a resource that is not JSON."""
        response = self._pool.request("GET", self._url + path, headers=self._headers)
        return response.data.decode()

    def get(self, path: str) -> Json:
        """GET."""
        return self.call("GET", path)

    def merge(self, path: str, body: Json) -> Json:
        """PATCH by JSON merge."""
        return self.call("PATCH", path, body, content=MERGE)

    def create(self, path: str, body: Json) -> Json:
        """POST."""
        return self.call("POST", path, body)

    def delete(self, path: str, **options: Any) -> None:
        """DELETE; a missing object is no error."""
        try:
            self.call("DELETE", path, options or None)
        except RefusedError as fault:
            if fault.status != 404:
                raise

    def wait(
        self,
        path: str,
        reached: Callable[[Mapping[str, Json]], Any],
        seconds: float = WAIT_SECONDS,
        told: Callable[[str, Json], None] = lambda *_: None,
        **query: str,
    ) -> dict[str, Json]:
        """Wait until *reached* is true for the objects by name. Raises: AssertionError.

        Returns the objects. *told* is called with every change: ADDED, MODIFIED or DELETED, and
        the object.
        """
        objects: dict[str, Json] = {}
        end = time.monotonic() + seconds
        listed = False
        while (left := end - time.monotonic()) > 0:
            objects.clear()
            for kind, found in self._told(path, left, query):
                if kind != "LISTED":
                    told(kind, found)
                if kind == "LISTED":
                    listed = True
                elif kind == "DELETED":
                    objects.pop(found["metadata"]["name"], None)
                else:
                    objects[found["metadata"]["name"]] = found
                if listed and reached(objects):
                    return objects
                if time.monotonic() > end:
                    break
        summary = json.dumps(list(objects.values()))[:3000]
        raise AssertionError(f"{path}: condition not reached within {seconds} s: {summary}")

    def follow(
        self, path: str, told: Callable[[str, Json], None], ended: threading.Event, **query: str
    ) -> None:
        """Call *told* with every change as `wait` does, in a thread until *ended* is set."""

        def run() -> None:
            try:
                self.wait(path, lambda _: ended.is_set(), FOLLOWED_SECONDS_MAX, told, **query)
            except (AssertionError, urllib3.exceptions.HTTPError):
                if not ended.is_set():
                    raise

        threading.Thread(target=run, daemon=True).start()

    def _told(
        self, path: str, seconds: float, query: Mapping[str, str]
    ) -> Iterator[tuple[str, Json]]:
        """Yield an event per listed object, then LISTED, then the events of a watch."""
        listed = self.get(f"{path}?{urlencode(query)}")
        for item in listed.get("items") or ():
            yield "ADDED", item
        yield "LISTED", {}
        version = listed["metadata"]["resourceVersion"]
        yield from self.watched(path, version, seconds, query)

    def watched(
        self, path: str, version: str, seconds: float, query: Mapping[str, str]
    ) -> Generator[tuple[str, Json]]:
        """Yield the events since a version, until there is none for *seconds*."""
        asked = {
            **query,
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, int(seconds) + 1)),
        }
        response = self._pool.request(
            "GET",
            f"{self._url}{path}?{urlencode(asked)}",
            headers=self._headers,
            preload_content=False,
            timeout=urllib3.Timeout(connect=5, read=seconds + 1),
        )
        rest = b""
        try:
            while chunk := response.read1(65536):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    event = json.loads(line)
                    yield event["type"], event["object"]
        except urllib3.exceptions.ReadTimeoutError:
            return
        finally:
            response.close()
