"""Calls to the API server: raw bytes out, model in.

Configuration, authentication and transport are those of the official package; its typed models
are not used, because they cost seconds and gigabytes in a large cluster.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiohttp
import msgspec
import yaml
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import ConfigException, incluster_config

from core.edge.clock import Clock, SystemClock
from core.edge.decode.fields import FAULTS, Bytes
from core.edge.decode.json_depth import decoded, legible
from core.edge.kube import kubeconfig
from core.edge.kube.credentials import BEARER, FromPlugin, follow_token
from core.model.errors import ConflictError, GarbledError, InvalidInputError, UnavailableError

CALL_SECONDS_MAX: Final = 15.0
CONNECTIONS_MAX: Final = 64
"""Calls and watches at once; more of them wait for a connection."""
CALL_TRIES_MAX: Final = 3
"""How often one call is made as long as the server answers 429."""
CALL_RETRY_SECONDS_MIN: Final = 1.0
CALL_RETRY_SECONDS_MAX: Final = 10.0
SILENCE_SECONDS_MAX: Final = 200.0
"""Bookmarks come about once a minute; a watch silent for longer is half open."""
PAGE_OBJECTS: Final = 500
ANSWER_BYTES_MAX: Final = 64 * 1024**2
"""Of one answer; objects have megabytes each if their writers like, and a page has many."""
WATCH_SECONDS: Final = 300
"""The server ends a watch after this; then it is begun anew from where it ended."""
MERGE_PATCH: Final = "application/merge-patch+json"
USER_AGENT: Final = "kube-ebb"

_DENIAL: Final = re.compile(r'admission webhook "|\S+( "[^"]*")? is forbidden: (?!User ")')
"""How the API server begins to say that admission denies an object. Where the right is missing it
names the user there; and a proxy on the way has its own words. Source: its package admission."""

Wire_ = TypeVar("Wire_")
Sleep = Callable[[float], Awaitable[object]]


class ApiError(UnavailableError):
    """The API server answered with a status that is no success."""

    def __init__(
        self, status: int, problem: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(f"API server answered {status}: {one_line(problem)}")
        self.status = status
        self.denied = _DENIAL.match(problem) is not None
        """Admission denies this object, as far as the words tell: a webhook answers with any
        status that it likes, a ValidatingAdmissionPolicy with 401, 403, 413 or 422."""
        self.forbidden = status == 403 and not self.denied
        """A right is missing, for all objects or some."""
        self.retry_after_seconds = retry_after_seconds


class TooLargeError(UnavailableError):
    """An answer is larger, or nests deeper, than is taken; whoever asks for less may get it."""


class Client:
    """An open connection to one API server; an async context manager."""

    def __init__(
        self,
        api: client.ApiClient,
        *,
        plugin: FromPlugin | None = None,
        sleep: Sleep = asyncio.sleep,
        silence_seconds_max: float = SILENCE_SECONDS_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self._api, self._plugin, self._sleep = api, plugin, sleep
        self.silence_seconds_max, self.answer_bytes_max = silence_seconds_max, answer_bytes_max
        api.user_agent = USER_AGENT
        # Unpacking a large list costs more than it saves on a cluster's own network.
        api.set_default_header("Accept-Encoding", "identity")  # type: ignore[no-untyped-call]

    @classmethod
    async def connect(
        cls,
        paths: str | None,
        context: str | None = None,
        clock: Clock = SystemClock(),  # noqa: B008 it has no state
    ) -> "Client":
        """Read the kubeconfig, or without one the files that every pod is given.

        *paths* and *context* are those of `kubeconfig.load`; by *clock* a plugin's answers end.
        Raises: InvalidInputError when there is no such file or context, it is no kubeconfig, or
        its plugin gives no credentials.
        """
        settings = client.Configuration(connection_pool_maxsize=CONNECTIONS_MAX)
        plugin: FromPlugin | None = None
        try:
            if paths is None:
                config.load_incluster_config(  # type: ignore[no-untyped-call]
                    client_configuration=settings
                )
                file: Path | None = Path(incluster_config.SERVICE_TOKEN_FILENAME)
            else:
                access = await kubeconfig.load(paths, context)
                await config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
                    access.document, client_configuration=settings
                )
                # The session's, since a header of the package's own has one value.
                settings.client_session_kwargs = {"headers": access.impersonation}
                file = access.token_file
                if access.asked is not None:
                    plugin = FromPlugin(access.asked, clock)
            if file is not None:
                follow_token(file, settings)
            return cls(client.ApiClient(settings), plugin=plugin)
        except _NO_CONFIGURATION as fault:
            problem = one_line(str(fault))
            if paths is None:
                problem = f"{problem} Outside a cluster, give --kubeconfig FILE"
            raise InvalidInputError(paths or "in-cluster configuration", problem) from fault

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    async def page(
        self,
        path: str,
        *,
        label_selector: str | None,
        token: str | None,
        objects: int = PAGE_OBJECTS,
    ) -> bytes:
        """Return one page of a list, as it came. Raises: TooLargeError: ask for fewer objects.

        A page that is not the first is asked for again as long as the server is throttling: a list
        of hundreds that began anew each time might never end.
        """
        query = {"labelSelector": label_selector, "continue": token, "limit": str(objects)}

        async def once() -> bytes:
            return await self._read(await self._call("GET", path, query=query))

        return await self._while_throttled(once, CALL_TRIES_MAX if token else 1)

    async def watch(
        self, path: str, *, label_selector: str | None, version: str
    ) -> aiohttp.ClientResponse:
        """Open a watch from a resourceVersion; the caller reads lines and closes.

        Raises: TimeoutError when the server takes the call and says nothing at all.
        """
        query = {
            "labelSelector": label_selector,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with asyncio.timeout(min(CALL_SECONDS_MAX, self.silence_seconds_max)):
            seconds = WATCH_SECONDS + CALL_SECONDS_MAX
            return await self._call("GET", path, query=query, seconds_max=seconds)

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        seconds_max: float = CALL_SECONDS_MAX,
        tries_max: int = CALL_TRIES_MAX,
    ) -> bytes:
        """Call and read the answer; call again as long as the server is throttling.

        *seconds_max* is for each try; the waits between them come on top. A PATCH is a JSON merge
        patch. Raises: ApiError with the status, ConflictError for 409, UnavailableError when there
        is no answer.
        """

        async def once() -> bytes:
            call = self._call(method, path, body=body, seconds_max=seconds_max)
            return await self._read(await call)

        return await self._while_throttled(once, tries_max)

    async def _while_throttled(
        self, once: Callable[[], Awaitable[bytes]], tries_max: int
    ) -> bytes:
        for tries in range(1, tries_max + 1):
            try:
                return await once()
            except ApiError as fault:
                if fault.status != 429 or tries == tries_max:
                    raise
                asked = fault.retry_after_seconds or 0
                await self._sleep(min(max(asked, CALL_RETRY_SECONDS_MIN), CALL_RETRY_SECONDS_MAX))
        raise AssertionError("the last try returns or raises")

    async def find(
        self, path: str, *, seconds_max: float = CALL_SECONDS_MAX, tries_max: int = CALL_TRIES_MAX
    ) -> bytes | None:
        """Return an object as it came, None when there is none; as `ask`."""
        try:
            return await self.ask("GET", path, seconds_max=seconds_max, tries_max=tries_max)
        except ApiError as fault:
            if fault.status == 404:
                return None
            raise

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: Mapping[str, Any] | None = None,
        seconds_max: float = CALL_SECONDS_MAX,
    ) -> aiohttp.ClientResponse:
        """Call, and turn every way of failing into one family. Raises: ApiError and its kin.

        InvalidInputError for credentials that a running program cannot take.
        """
        given = [(name, value) for name, value in (query or {}).items() if value is not None]
        headers = {"Accept": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = MERGE_PATCH
        if self._plugin is not None:
            await self._plugin.renew(self._api.configuration)
        try:
            prepared = await self._api.param_serialize(
                method, path, None, given, headers, body, auth_settings=[BEARER]
            )
            answer = await self._api.call_api(*prepared, _request_timeout=seconds_max)
        except ApiException as fault:
            raise ApiError(fault.status or 0, str(fault.reason)) from fault
        except (TimeoutError, aiohttp.ClientError, OSError) as fault:
            raise _unreachable(fault) from fault
        response: aiohttp.ClientResponse = answer.response
        if response.status < 300:
            return response
        problem = _message(await self._read(response))
        after = response.headers.get("Retry-After", "")
        refusal = ApiError(response.status, problem, float(after) if after.isdecimal() else None)
        if response.status == 401 and self._plugin is not None and not refusal.denied:
            self._plugin.refused()
        if response.status == 409:
            raise ConflictError(str(refusal))
        raise refusal

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        chunks: list[bytes] = []
        length = 0
        try:
            while chunk := await response.content.readany():
                length += len(chunk)
                if length > self.answer_bytes_max:
                    response.close()  # or the rest would be read for the next call's sake
                    problem = f"an answer of more than {self.answer_bytes_max} bytes"
                    raise TooLargeError(f"API server: {problem}")
                chunks.append(chunk)
            return b"".join(chunks)
        except (TimeoutError, aiohttp.ClientError, OSError) as fault:
            raise _unreachable(fault) from fault
        finally:
            chunks.clear()  # or the trace of a fault would hold them
            response.release()


def answered(decoder: msgspec.json.Decoder[Wire_], raw: Bytes) -> Wire_:
    """Decode what the API server sent. Raises: GarbledError: this it does not send."""
    given = bytes(raw)
    try:
        return decoded(decoder.decode, given)
    except FAULTS as fault:
        mended = legible(given)
        if mended != given:
            return answered(decoder, mended)
        raise GarbledError(f"API server: not what it must send: {fault}") from fault


def _message(body: bytes) -> str:
    """Return what a v1 Status says, or what a proxy on the way wrote in its place."""
    try:
        return decoded(_STATUS.decode, body).message
    except FAULTS:
        return body.decode(errors="replace")


def one_line(text: str) -> str:
    """Return what somebody else has written in one short line."""
    return f"{' '.join(text.split()):.200}"


def _unreachable(fault: BaseException) -> UnavailableError:
    if isinstance(fault, TimeoutError):
        return UnavailableError("API server: no answer in time")
    return UnavailableError(f"API server: {type(fault).__name__} {one_line(str(fault))}")


class _Status(msgspec.Struct):
    message: str = ""


_STATUS: Final = msgspec.json.Decoder(_Status)
_NO_CONFIGURATION: Final = (
    AttributeError,  # the package's own, on a file of another shape
    ConfigException,
    KeyError,
    OSError,
    TypeError,
    ValueError,
    yaml.YAMLError,
)
