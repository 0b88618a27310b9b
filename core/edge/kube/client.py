"""Calls to the API server: raw bytes out, model in.

Configuration, authentication and transport are those of the official package; its typed models
are not used, because they cost seconds and gigabytes in a large cluster.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import ConfigException

from core.edge import decode
from core.edge.objects import NODE_DECODER
from core.errors import ConflictError, InvalidInputError, UnavailableError
from core.model import Node, Taint

CALL_SECONDS_MAX: Final = 15.0
PAGE_OBJECTS: Final = 500
WATCH_SECONDS: Final = 300
"""The server ends a watch after this; then it is begun anew from where it ended."""
PODS: Final = "pods"
NODES: Final = "nodes"
MERGE_PATCH: Final = "application/merge-patch+json"
USER_AGENT: Final = "kube-ebb"


class ApiError(UnavailableError):
    """The API server answered with a status that is no success."""

    def __init__(
        self, status: int, problem: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(f"API server answered {status}: {problem:.200}")
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class Client:
    """An open connection to one API server; an async context manager."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        api.user_agent = USER_AGENT
        self._core = client.CoreV1Api(api)

    @classmethod
    async def connect(cls, kubeconfig: str | None) -> "Client":
        """Read *kubeconfig*, or without one the files that every pod is given.

        Raises: InvalidInputError when there is no such file, or it is not a kubeconfig.
        """
        settings = client.Configuration()
        try:
            if kubeconfig is None:
                config.load_incluster_config(  # type: ignore[no-untyped-call]
                    client_configuration=settings
                )
            else:
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=kubeconfig, client_configuration=settings
                )
        except (ConfigException, OSError, ValueError, TypeError) as fault:
            where = kubeconfig or "in-cluster configuration"
            raise InvalidInputError(where, str(fault).splitlines()[0]) from fault
        return cls(client.ApiClient(settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    async def page(self, resource: str, *, label_selector: str | None, token: str | None) -> bytes:
        """Return one page of a list, as it came."""
        response = await self._call(
            self._lister(resource),
            label_selector=label_selector,
            _continue=token,
            limit=PAGE_OBJECTS,
            _request_timeout=CALL_SECONDS_MAX,
        )
        return await _read(response)

    async def watch(
        self, resource: str, *, label_selector: str | None, version: str
    ) -> aiohttp.ClientResponse:
        """Open a watch from a resourceVersion; the caller reads lines and closes."""
        return await self._call(
            self._lister(resource),
            label_selector=label_selector,
            watch=True,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=WATCH_SECONDS + CALL_SECONDS_MAX,
        )

    async def get_node(self, name: str) -> tuple[Node, str]:
        """Return a Node and its resourceVersion."""
        response = await self._call(
            self._core.read_node_without_preload_content, name, _request_timeout=CALL_SECONDS_MAX
        )
        return _node(await _read(response))

    async def patch_node(self, name: str, patch: Mapping[str, Any]) -> tuple[Node, str]:
        """Merge-patch a Node; return it as stored, and its resourceVersion."""
        response = await self._call(
            self._core.patch_node_without_preload_content,
            name,
            dict(patch),
            _content_type=MERGE_PATCH,
            _request_timeout=CALL_SECONDS_MAX,
        )
        return _node(await _read(response))

    async def replace_taints(
        self, name: str, taints: Sequence[Taint], resource_version: str
    ) -> tuple[Node, str]:
        """Write the whole list of taints. Raises: ConflictError when the Node has changed."""
        written = [{"key": t.key, "value": t.value, "effect": t.effect} for t in taints]
        metadata = {"resourceVersion": resource_version}
        return await self.patch_node(name, {"metadata": metadata, "spec": {"taints": written}})

    def _lister(self, resource: str) -> Any:  # noqa: ANN401 generated code without types
        if resource == PODS:
            return self._core.list_pod_for_all_namespaces_without_preload_content
        return self._core.list_node_without_preload_content

    async def _call(
        self,
        method: Any,  # noqa: ANN401 generated code without types
        *arguments: object,
        **options: object,
    ) -> aiohttp.ClientResponse:
        """Call, and turn every way of failing into one family. Raises: ApiError and its kin."""
        given = {name: value for name, value in options.items() if value is not None}
        try:
            response: aiohttp.ClientResponse = await method(*arguments, **given)
        except ApiException as fault:
            raise ApiError(fault.status or 0, str(fault.reason)) from fault
        except (TimeoutError, aiohttp.ClientError, OSError) as fault:
            raise UnavailableError(f"API server: {type(fault).__name__} {fault}") from fault
        if response.status < 300:
            return response
        problem = (await _read(response)).decode(errors="replace")
        after = response.headers.get("Retry-After", "")
        if response.status == 409:
            raise ConflictError(f"API server answered 409: {problem:.200}")
        raise ApiError(response.status, problem, float(after) if after.isdecimal() else None)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (TimeoutError, aiohttp.ClientError, OSError) as fault:
        raise UnavailableError(f"API server: {type(fault).__name__} {fault}") from fault
    finally:
        response.release()


def _node(raw: bytes) -> tuple[Node, str]:
    found = NODE_DECODER.decode(raw)
    return decode.node_of(found), found.metadata.resource_version
