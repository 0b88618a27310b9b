"""A fake API server on a real socket, with lists, watches, patches and injected faults."""

import asyncio
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import orjson
from aiohttp import web

from kube.cluster_kinds import KINDS
from kube.decode import kinds
from kube.stores.access_review import REVIEW_PATH
from tests.support.fake_objects import (
    Json,
    event,
    failure,
    json,
    key_of,
    matches,
    merged,
    strategically_merged,
)
from tests.support.forwards import Forward

NODES, PODS = kinds.NODES.resource, kinds.PODS.resource
SWALLOW, LOSE = web.Response(), web.Response()
"""Faults: never answer; do what is asked for, but lose the answer."""
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass
class Call:
    """A received request."""

    verb: str
    resource: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    path: str = ""
    user: str = ""
    """Common name of the client certificate; empty without one."""
    body: bytes = b""

    @property
    def sent(self) -> Any:
        """Return the JSON in the body."""
        return orjson.loads(self.body)


def _is_asked_for(one: Json, request: web.Request) -> bool:
    """Return whether the path's namespace and a selector of metadata.name match the object."""
    namespace = request.match_info.get("namespace")
    name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
    metadata = one["metadata"]
    return namespace in (None, metadata.get("namespace")) and name in ("", metadata["name"])


def _common_name(request: web.Request) -> str:
    """Return the common name of the client certificate; empty without one."""
    assert request.transport is not None
    found = request.transport.get_extra_info("peercert") or {}
    return "".join(value for ((name, value),) in found.get("subject", ()) if name == "commonName")


@dataclass(eq=False)
class Stream:
    """An open watch; it sends the bytes in its queue, and None ends it."""

    resource: str
    selector: str | None
    asked_for: Callable[[Json], bool] = lambda _: True
    since: int = 0
    """The version from which it watches; events that are not newer are not sent."""
    seen: set[str] = field(default_factory=set)
    queue: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    cut: bool = False

    def send(self, kind: str, obj: Json) -> None:
        """Send an event, translated for the version and the selector of this watch."""
        if int(obj["metadata"]["resourceVersion"]) <= self.since:
            return
        key = key_of(obj)
        fits = matches(obj, self.selector) and self.asked_for(obj)
        if kind != "DELETED" and not fits:
            kind = "DELETED"
        if kind == "DELETED" and key not in self.seen:
            return
        if kind == "DELETED":
            self.seen.discard(key)
        else:
            kind = "MODIFIED" if key in self.seen else "ADDED"
            self.seen.add(key)
        self.queue.put_nowait(event(kind, obj))


class FakeApi:
    """A fake API server; an async context manager. All objects share a version counter."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[str, Json]] = {kind.resource: {} for kind in KINDS}
        self.history: list[tuple[int, str, str, Json]] = []
        self.calls: list[Call] = []
        self.streams: list[Stream] = []
        self.documents: dict[str, Json] = {}
        """Objects by path that are not listed, such as Leases and Secrets."""
        self.served = {path for kind in KINDS for path in kind.paths[:1]}
        """Paths of served lists; other lists return 404."""
        self.denied: set[str] = set()
        """Resources that are answered with 403, and paths of objects."""
        self.unauthorized: set[str] = set()
        """Users that are answered with 401."""
        self.forwards: dict[str, Forward] = {}
        """Port-forwards by namespace/name of the pod."""
        self.scaled: Callable[[Json], None] = lambda _: None
        """Called with each Deployment whose replicas were written."""
        self.url = ""
        self._faults: dict[str, deque[web.Response | None]] = defaultdict(deque)
        self._pages: dict[str, tuple[int, list[Json]]] = {}
        self._tokens = itertools.count(1)
        self._news = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0, tls: Any = None) -> None:
        """Listen on *port*, or on a free port."""
        app = web.Application()
        for kind in KINDS:
            for path in kind.paths:
                app.router.add_get(path, partial(self._get, kind))
        for kind in KINDS:
            for path in kind.paths if kind.optional else ():
                root, _, resource = path.rpartition("/")
                within = f"{root}/namespaces/{{namespace}}/{resource}"
                app.router.add_get(within, partial(self._get, kind))
                for route in (within, f"{within}/{{name}}"):
                    app.router.add_route("*", route, partial(self._object, kind))
        for kind in (kinds.REPLICA_SETS, kinds.BUDGETS):
            within = kinds.in_namespace(kind.path, "{namespace}")
            app.router.add_get(within, partial(self._get, kind))
        pods = kinds.in_namespace(kinds.PODS.path, "{namespace}")
        app.router.add_get(f"{pods}/{{name}}/portforward", self._forward)
        app.router.add_get(pods, partial(self._get, kinds.PODS))
        app.router.add_route("*", f"{pods}/{{name}}", self._pod)
        app.router.add_post(REVIEW_PATH, self._review)
        deployments = kinds.in_namespace(kinds.DEPLOYMENTS.path, "{namespace}")
        app.router.add_route("*", f"{deployments}/{{name}}/scale", self._scale)
        app.router.add_get("/api/v1/nodes/{name}", self._read)
        app.router.add_patch("/api/v1/nodes/{name}", self._patch)
        app.router.add_route("*", "/api/v1/namespaces/{path:.*}", self._document)
        app.router.add_route("*", "/apis/{path:.*}", self._document)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=tls).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        self.cut()
        assert self._runner is not None
        await self._runner.cleanup()

    # Changes in the cluster.

    def serve(self, pod: str, port_name: str, port: int, forward: Forward) -> None:
        """Let a pod, which is in no list, answer on a container port; *pod*: namespace/name."""
        namespace, _, name = pod.partition("/")
        container = {"name": "main", "ports": [{"name": port_name, "containerPort": port}]}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self.put_document(path, {"metadata": {"name": name}, "spec": {"containers": [container]}})
        self.forwards[pod] = forward

    def put(self, resource: str, obj: Json) -> Json:
        """Create or change an object."""
        self.version += 1
        stored = deepcopy(obj)
        stored.setdefault("metadata", {})["resourceVersion"] = str(self.version)
        key = key_of(stored)
        kind = "MODIFIED" if key in self.objects[resource] else "ADDED"
        self.objects[resource][key] = stored
        self._tell(resource, kind, stored)
        return stored

    def remove(self, resource: str, key: str) -> None:
        """Delete an object."""
        self.version += 1
        gone = deepcopy(self.objects[resource].pop(key))
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell(resource, "DELETED", gone)

    def _tell(self, resource: str, kind: str, obj: Json) -> None:
        self.history.append((self.version, resource, kind, obj))
        for stream in self.streams:
            if stream.resource == resource:
                stream.send(kind, obj)

    def backup(self) -> Callable[[], None]:
        """Return a function that restores the present objects and ends all watches."""
        version, objects = self.version, deepcopy(self.objects)

        def restore() -> None:
            self.version, self.objects = version, deepcopy(objects)
            self.history = [change for change in self.history if change[0] <= version]
            self.end()

        return restore

    # Faults.

    def fail_next(
        self, verb: str, status: int, *, times: int = 1, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer the next calls of *verb* (list, watch, get, patch) with *status*."""
        for _ in range(times):
            self._faults[verb].append(failure(status, headers))

    def heal(self) -> None:
        """Forget the faults of calls that have not come yet."""
        self._faults.clear()

    def pass_next(self, verb: str) -> None:
        """Answer the next call of *verb* normally, before faults that are set later."""
        self._faults[verb].append(None)

    def answer_next(self, verb: str, body: bytes, *, status: int = 200) -> None:
        """Answer the next call of *verb* with these bytes."""
        self._faults[verb].append(web.Response(body=body, status=status))

    def swallow_next(self, verb: str) -> None:
        """Accept the next call of *verb* and never answer it."""
        self._faults[verb].append(SWALLOW)

    def lose_next(self, verb: str) -> None:
        """Do what the next call of *verb* asks for, but close its connection without an answer.

        For objects that are listed.
        """
        self._faults[verb].append(LOSE)

    def bookmark(self) -> None:
        """Send a bookmark on every open watch."""
        meta = {"resourceVersion": str(self.version)}
        self.raw(orjson.dumps({"type": "BOOKMARK", "object": {"metadata": meta}}) + b"\n")

    def error(self, code: int) -> None:
        """Send an ERROR event on every open watch, and end the watch, as API servers do."""
        status = {"kind": "Status", "code": code, "message": "said so"}
        self.raw(orjson.dumps({"type": "ERROR", "object": status}) + b"\n")
        self.end()

    def raw(self, sent: bytes) -> None:
        """Send bytes on every open watch."""
        for stream in self.streams:
            stream.queue.put_nowait(sent)

    def end(self) -> None:
        """End every open watch regularly, as at its timeout."""
        for stream in self.streams:
            stream.queue.put_nowait(None)
        self.streams = []

    def cut(self) -> None:
        """Cut the connection of every open watch."""
        for stream in self.streams:
            stream.cut = True
        self.end()

    def hang(self) -> None:
        """Send nothing more on the open watches, but leave them open."""
        self.streams = []

    # Conditions that tests wait for.

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for a condition that a request makes true."""
        async with asyncio.timeout(20), self._news:
            await self._news.wait_for(reached)

    async def watched(self, resource: str) -> None:
        """Wait for a watch of *resource*."""
        await self.until(lambda: any(s.resource == resource for s in self.streams))

    def count(self, verb: str) -> int:
        """Return the number of received calls of *verb*."""
        return sum(call.verb == verb for call in self.calls)

    def has_come(self, verb: str, times: int) -> bool:
        """Return whether *times* calls of *verb* have been received."""
        return self.count(verb) == times

    # The protocol.

    async def _note(
        self, verb: str, request: web.Request, resource: str = NODES
    ) -> web.Response | None:
        async with self._news:
            headers, user = dict(request.headers), _common_name(request)
            body = await request.read()
            self.calls.append(
                Call(verb, resource, dict(request.query), headers, request.path, user, body)
            )
            self._news.notify_all()
        if user in self.unauthorized:
            return failure(401)
        fault = self._faults[verb].popleft() if self._faults[verb] else None
        if fault is SWALLOW:
            await asyncio.Event().wait()
        return fault

    async def _get(self, kind: kinds.Kind[Any, Any], request: web.Request) -> web.StreamResponse:
        watching = request.query.get("watch", "").lower() == "true"
        # A client that opens a watch again reads the newest version from a page of one object.
        last = next((one for one in reversed(self.calls) if one.resource == kind.resource), None)
        one_object = not watching and request.query.get("limit") == "1"
        probing = one_object and last is not None and last.verb in ("watch", "probe")
        verb = "watch" if watching else "probe" if probing else "list"
        fault = await self._note(verb, request, kind.resource)
        if fault is not None:
            return fault
        if kind.resource in self.denied:
            return failure(403)
        if self._whole(request) not in self.served:
            return failure(404)
        return await self._watch(kind, request) if watching else self._list(kind, request)

    def _whole(self, request: web.Request) -> str:
        """Return the path of the list of all namespaces."""
        namespace = request.match_info.get("namespace")
        return request.path.replace(f"/namespaces/{namespace}", "", 1).removesuffix(
            f"/{request.match_info.get('name', '')}"
        )

    async def _object(self, kind: kinds.Kind[Any, Any], request: web.Request) -> web.Response:
        """Read, create, replace, merge-patch or delete a listed object."""
        verb, sent = request.method.lower(), orjson.loads(await request.read() or b"{}")
        fault = await self._note(verb, request, kind.resource)
        if fault is not None and fault is not LOSE:
            return fault
        denied = kind.resource in self.denied or request.path in self.denied
        if denied or self._whole(request) not in self.served:
            return failure(403 if denied else 404)
        name = request.match_info.get("name") or sent["metadata"]["name"]
        key = f"{request.match_info['namespace']}/{name}"
        found = self.objects[kind.resource].get(key)
        if (found is None) is not (verb == "post"):
            return failure(409 if verb == "post" else 404)
        strategic = request.content_type == STRATEGIC
        answer = self._answer(kind, verb, key, sent, strategic=strategic)
        if fault is LOSE and request.transport is not None:
            request.transport.abort()
        return answer

    def _answer(
        self, kind: kinds.Kind[Any, Any], verb: str, key: str, sent: Json, *, strategic: bool
    ) -> web.Response:
        found = self.objects[kind.resource].get(key)
        if verb == "get" and found is not None:
            return json(found)
        meta = sent.get("metadata") or sent.get("preconditions") or {}
        asked = meta.get("resourceVersion")
        if found is not None and asked not in (None, found["metadata"]["resourceVersion"]):
            return failure(409)
        if verb == "delete":
            self.remove(kind.resource, key)
            return json({"kind": "Status"})
        if verb != "put":
            sent = (strategically_merged if strategic else merged)(found or {}, sent)
        return json(self.put(kind.resource, sent))

    async def _pod(self, request: web.Request) -> web.Response:
        """Answer for a Pod, which may be among the documents."""
        if request.path in self.documents:
            return await self._document(request)
        return await self._object(kinds.PODS, request)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        """Open a port-forward to a pod."""
        fault = await self._note("portforward", request, "pods/portforward")
        if fault is not None:
            return fault
        if "pods/portforward" in self.denied:
            return failure(403)
        info = request.match_info
        found = self.forwards.get(f"{info['namespace']}/{info['name']}")
        return failure(404) if found is None else await found.answer(request)

    async def _scale(self, request: web.Request) -> web.Response:
        """Read or merge-patch the scale of a Deployment."""
        verb, sent = request.method.lower(), orjson.loads(await request.read() or b"{}")
        fault = await self._note(f"{verb} scale", request, "deployments/scale")
        if fault is not None:
            return fault
        if "deployments/scale" in self.denied:
            return failure(403)
        info = request.match_info
        found = self.objects["deployments"].get(f"{info['namespace']}/{info['name']}")
        if found is None:
            return failure(404)
        if verb == "patch":
            if sent["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                return failure(409)
            manager = request.query.get("fieldManager", "")
            found = self.set_replicas(found, sent["spec"]["replicas"], manager)
        meta = {key: found["metadata"].get(key) for key in ("name", "uid", "resourceVersion")}
        return json({"metadata": meta, "spec": {"replicas": found["spec"]["replicas"]}})

    def set_replicas(self, deployment: Json, replicas: int, manager: str) -> Json:
        """Set the replicas of a Deployment, as a client with this field manager does."""
        changed = deepcopy(deployment)
        meta = changed["metadata"]
        meta["generation"] = meta.get("generation", 0) + 1
        owned: Json = {"f:spec": {"f:replicas": {}}}
        meta["managedFields"] = [{"manager": manager, "fieldsV1": owned}]
        changed["spec"]["replicas"] = replicas
        stored = self.put("deployments", changed)
        self.scaled(stored)
        return stored

    def _list(self, kind: kinds.Kind[Any, Any], request: web.Request) -> web.Response:
        token = request.query.get("continue")
        if token is None:
            selector = request.query.get("labelSelector")
            found = [
                one
                for one in self.objects[kind.resource].values()
                if matches(one, selector) and _is_asked_for(one, request)
            ]
            version = self.version
        else:
            version, found = self._pages[token]
        limit = int(request.query.get("limit", len(found) or 1))
        meta = {"resourceVersion": str(version)}
        if len(found) > limit:
            meta["continue"] = f"page-{next(self._tokens)}"
            self._pages[meta["continue"]] = (version, found[limit:])
        answer = json({"kind": f"{kind.name}List", "metadata": meta, "items": found[:limit]})
        answer.enable_compression()  # if the client accepts it
        return answer

    async def _watch(self, kind: kinds.Kind[Any, Any], request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        stream = Stream(
            kind.resource,
            request.query.get("labelSelector"),
            partial(_is_asked_for, request=request),
            since,
        )
        for version, of, change, obj in self.history:
            if of != kind.resource:
                continue
            if version > since:
                stream.send(change, obj)
            elif change != "DELETED" and matches(obj, stream.selector) and stream.asked_for(obj):
                stream.seen.add(key_of(obj))
            else:
                stream.seen.discard(key_of(obj))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        async with self._news:
            self.streams.append(stream)
            self._news.notify_all()
        while (line := await stream.queue.get()) is not None:
            await response.write(line)
        if stream.cut and request.transport is not None:
            request.transport.abort()
        return response

    async def _read(self, request: web.Request) -> web.Response:
        fault = await self._note("get", request)
        found = self.objects["nodes"].get(request.match_info["name"])
        return fault or (failure(404) if found is None else json(found))

    async def _patch(self, request: web.Request) -> web.Response:
        fault = await self._note("patch", request)
        if fault is not None:
            return fault
        assert request.content_type == "application/merge-patch+json"
        found = self.objects["nodes"].get(request.match_info["name"])
        if found is None:
            return failure(404)
        patch = orjson.loads(await request.read())
        asked = patch.get("metadata", {}).get("resourceVersion")
        if asked is not None and asked != found["metadata"]["resourceVersion"]:
            return failure(409)
        return json(self.put("nodes", merged(found, patch)))

    async def _review(self, request: web.Request) -> web.Response:
        """Answer an access review: everything is allowed except `denied`."""
        fault = await self._note("post", request, "selfsubjectaccessreviews")
        sent = orjson.loads(await request.read())
        resource = sent["spec"]["resourceAttributes"]["resource"]
        return fault or json({"status": {"allowed": resource not in self.denied}})

    async def _document(self, request: web.Request) -> web.Response:
        """Read, create, replace or merge-patch an object that is not listed."""
        path, verb = request.path, request.method.lower()
        fault = await self._note(verb, request)
        if fault is not None or path in self.denied:
            return fault or failure(403)
        sent = orjson.loads(await request.read()) if verb != "get" else {}
        if verb == "post":
            path = f"{path}/{sent['metadata']['name']}"
        found = self.documents.get(path)
        if verb == "post" and found is not None:
            return failure(409)
        if verb != "post" and found is None:
            return failure(404)
        if verb != "get":
            asked = sent["metadata"].get("resourceVersion")
            if found is not None and asked not in (None, found["metadata"]["resourceVersion"]):
                return failure(409)
            self.version += 1
            sent = merged(found or {}, sent) if verb == "patch" else sent
            sent["metadata"]["resourceVersion"] = str(self.version)
            self.documents[path] = sent
            async with self._news:
                self._news.notify_all()
        return json(self.documents[path])

    def put_document(self, path: str, obj: Json) -> None:
        """Create or replace an object that is not listed."""
        self.version += 1
        metadata = {**obj.get("metadata", {}), "resourceVersion": str(self.version)}
        self.documents[path] = {**obj, "metadata": metadata}
