"""Client for the API server; answers are raw bytes.

Configuration, authentication and transport come from the official package, kubernetes. Its typed
models are not used: they would cost seconds and gigabytes in a large cluster.
"""

import asyncio
import re
import ssl
import sys
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiohttp
import msgspec
import yaml

from core.model.errors import ConflictError, GarbledError, InvalidInputError, UnavailableError
from kube import kubeconfig
from kube.credentials import (
    BEARER,
    CertificateFiles,
    ClientCertificate,
    PluginCredentials,
    RenewableCredentials,
    use_token_file,
)
from kube.decode.field_decoding import DECODE_ERRORS, Bytes
from kube.decode.json_depth import decoded, legible
from kube.target import Overrides, Target
from kube.write_policies import DENIAL
from runtime.clock import Clock, SystemClock

# `import kubernetes` runs the package's __init__.py, which imports a second client and several
# libraries that Ebb does not use. They take 9 MB of memory and a tenth of a second. Python runs
# no package that is already in `sys.modules`. So the loop puts empty modules there, and Python
# imports only the submodules that are named below.
for _name in ("kubernetes", "kubernetes.aio"):
    if _name not in sys.modules and (_spec := find_spec(_name)) is not None:
        sys.modules[_name] = module_from_spec(_spec)

from kubernetes.aio import client, config  # noqa: E402
from kubernetes.aio.client.exceptions import ApiException  # noqa: E402
from kubernetes.aio.config import ConfigException, incluster_config  # noqa: E402

CALL_SECONDS_MAX: Final = 15.0
CONNECTIONS_MAX: Final = 64
"""Maximum number of concurrent calls and watches; further ones wait for a connection."""
RETIRED_MAX: Final = 1
"""Number of sessions with a previous client certificate that are kept open: a certificate lasts
longer than a watch."""
CALL_TRIES_MAX: Final = 3
"""Maximum number of tries of a call while the server answers 429."""
CALL_RETRY_SECONDS_MIN: Final = 1.0
CALL_RETRY_SECONDS_MAX: Final = 10.0
SILENCE_SECONDS_MAX: Final = 200.0
"""Time without data after which a watch is considered half open; bookmarks arrive every minute."""
PAGE_OBJECTS: Final = 500
ANSWER_BYTES_MAX: Final = 64 * 1024**2
"""Maximum size of an answer; a page can have many objects of up to megabytes each."""
WATCH_SECONDS: Final = 300
"""Time after which the server ends a watch; it is then resumed from the last resourceVersion."""
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
USER_AGENT: Final = "kube-ebb"
VERBS: Final[Mapping[str, str]] = {
    "GET": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
"""Verbs of the Kubernetes API by HTTP method; a GET may also be a list or a watch."""
NO_ANSWER: Final = "error"
"""Code of a request without an answer, for metrics."""
_DENIAL: Final = re.compile(r'admission webhook "|\S+( "[^"]*")? is forbidden: (?!User ")')
"""Beginning of the API server's message if admission denies an object.

Without RBAC permission the message names the user instead, and proxies have other messages.
Source: the API server's package admission."""
Wire_ = TypeVar("Wire_")
Sleep = Callable[[float], Awaitable[object]]


class ApiError(UnavailableError):
    """The API server answered with an error status."""

    def __init__(
        self, status: int, problem: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(f"API server answered {status}: {one_line(problem)}")
        self.status = status
        self.denied = _DENIAL.match(problem) is not None
        """Whether admission denied this object, as far as the message shows.

        A webhook can answer with any status, a ValidatingAdmissionPolicy with 401, 403, 413 or
        422."""
        self.forbidden = status == 403 and not self.denied
        """Whether an RBAC permission is missing, for all objects or for some."""
        self.retry_after_seconds = retry_after_seconds


class PolicyRefusedError(ApiError):
    """A policy for Ebb's own accounts (WRITE_POLICIES) refused a write.

    These policies let every write of Ebb pass. So a mutating webhook or policy of somebody else
    has changed the object of the write, and the next write most likely fails too.
    """

    def __init__(self, status: int, problem: str, *, policy: str, change: str) -> None:
        super().__init__(status, problem)
        self.policy = policy
        self.change = change
        """The change that the policy does not allow, such as `metadata.labels: example.org/a`."""


class TooLargeError(UnavailableError):
    """An answer is too large or too deeply nested; a request for fewer objects may succeed."""


CountRequest = Callable[[str, str], None]
"""Counts a request, given its verb and the code of its answer."""


class Client:
    """Client of one API server: lists, watches and single requests; `async with` closes it."""

    def __init__(
        self,
        api: client.ApiClient,
        *,
        renewed: Sequence[RenewableCredentials] = (),
        sleep: Sleep = asyncio.sleep,
        silence_seconds_max: float = SILENCE_SECONDS_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        target: Target | None = None,
        count_request: CountRequest = lambda *_: None,
        request_seconds: float | None = None,
    ) -> None:
        """Take a client of the kubernetes package, and the credentials to renew before each call.

        *request_seconds*: timeout of each call; 0 means WATCH_SECONDS, None the default of the
        call.
        """
        self._api, self._renewed, self._sleep = api, renewed, sleep
        self.silence_seconds_max, self.answer_bytes_max = silence_seconds_max, answer_bytes_max
        self._count_request, self._request_seconds = count_request, request_seconds
        self.observe_patch: Callable[[str, PolicyRefusedError | None], None] = lambda *_: None
        """Called with the path of each PATCH that the API server accepted (None), or that a policy
        for Ebb's own accounts refused."""
        self._retired: deque[aiohttp.ClientSession] = deque()
        """Sessions with a previous client certificate, whose watches may still be open."""
        self.server_date = ""
        """Header Date of the last answer: the time of the API server."""
        self.target = target or Target(str(api.configuration.host))
        api.user_agent = USER_AGENT
        # Decompression of a large list costs more than it saves inside a cluster. Outside, where
        # there is a context, the list of 150,000 pods would be 475 MB.
        self._list_encoding = "gzip" if self.target.context else "identity"

    @classmethod
    async def connect(
        cls,
        paths: str | None,
        context: str | None = None,
        clock: Clock = SystemClock(),  # noqa: B008 it has no state
        overrides: Overrides = kubeconfig.NO_OVERRIDES,
        *,
        count_request: CountRequest = lambda *_: None,
    ) -> "Client":
        """Create a client from a kubeconfig, or from the service account files of a pod.

        *paths*: kubeconfig files, separated as in $KUBECONFIG; None: use the service account.
        *context*: name of the context; None: the current context. *clock*: decides when
        credentials of a plugin expire. *overrides*: options of the command line. *count_request*:
        called after each request.

        Raises: InvalidInputError if the file or the context does not exist, the file is not a
        kubeconfig, or its plugin returns no credentials.
        """
        settings = client.Configuration(connection_pool_maxsize=CONNECTIONS_MAX)
        renewed: list[RenewableCredentials] = []
        target: Target | None = None
        try:
            if paths is None:
                config.load_incluster_config(  # type: ignore[no-untyped-call]
                    client_configuration=settings
                )
                file: Path | None = Path(incluster_config.SERVICE_TOKEN_FILENAME)
                headers = kubeconfig.impersonation(overrides.as_user())
            else:
                access = await kubeconfig.load(paths, context, overrides)
                await config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
                    access.document, client_configuration=settings
                )
                headers = access.impersonation
                file, target = access.token_file, access.target
                if access.plugin_run is not None:
                    renewed.append(PluginCredentials(access.plugin_run, clock))
                if access.certificate_files is not None:
                    renewed.append(CertificateFiles(*access.certificate_files))
            # Headers of the session, because a default header of the package has one value.
            settings.client_session_kwargs = {"headers": headers}
            if file is not None:
                use_token_file(file, settings)
            return cls(
                client.ApiClient(settings),
                renewed=renewed,
                target=target,
                count_request=count_request,
                request_seconds=overrides.request_seconds,
            )
        except _NO_CONFIGURATION as fault:
            problem = one_line(str(fault))
            if paths is None:
                problem = f"{problem} Outside a cluster, give --kubeconfig FILE"
            raise InvalidInputError(paths or "in-cluster configuration", problem) from fault

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]
        for session in self._retired:
            await session.close()

    async def _renew_credentials(self) -> None:
        for credentials in self._renewed:
            await credentials.renew(self._api.configuration, self._use_certificate)
        while len(self._retired) > RETIRED_MAX:
            await self._retired.popleft().close()

    def _use_certificate(self, pair: ClientCertificate) -> None:
        """Use a client certificate for new connections. Raises: OSError, ValueError if invalid."""
        rest = self._api.rest_client
        with tempfile.NamedTemporaryFile() as file:
            # The ssl module needs a file. Without a password it would prompt for one.
            file.write(pair.certificate + b"\n" + pair.key)
            file.flush()
            # A certificate with the key of another one would leave the context without a key.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(file.name, password="")
            rest.ssl_context.load_cert_chain(file.name, password="")
        if rest.pool_manager is not None:
            # Idle connections of the session would still use the previous certificate.
            self._retired.append(rest.pool_manager)
            rest.pool_manager = None  # the package creates it again with the next call

    async def page(
        self,
        path: str,
        *,
        label_selector: str | None,
        field_selector: str | None = None,
        token: str | None,
        objects: int = PAGE_OBJECTS,
    ) -> bytes:
        """Return one page of the list at *path* as raw JSON.

        *token*: continue token of the previous page; None for the first page. *objects*: maximum
        number of objects on the page.

        Raises: TooLargeError if the page is too large; the caller may then request fewer objects.
        ApiError with the status, UnavailableError without an answer.
        """
        query = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "continue": token,
            "limit": str(objects),
        }

        async def once() -> bytes:
            encoding = self._list_encoding
            return await self._read(
                await self._call("GET", path, query=query, accept_encoding=encoding)
            )

        # Retry a later page: a list of hundreds of pages that restarts each time might never end.
        return await self._while_throttled(once, CALL_TRIES_MAX if token else 1)

    async def watch(
        self,
        path: str,
        *,
        label_selector: str | None,
        field_selector: str | None = None,
        version: str,
    ) -> aiohttp.ClientResponse:
        """Open a watch of the list at *path*; the caller reads its lines and closes the response.

        *version*: the resourceVersion after which the API server sends changes. Raises: ApiError
        with the status, UnavailableError without an answer, TimeoutError if the server accepts the
        call and sends nothing.
        """
        query = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with asyncio.timeout(min(CALL_SECONDS_MAX, self.silence_seconds_max)):
            seconds = WATCH_SECONDS + CALL_SECONDS_MAX
            return await self._call("GET", path, query=query, seconds_max=seconds)

    async def web_socket(
        self, path: str, query: Mapping[str, str], protocol: str, *, message_bytes_max: int
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket to *path* of the API server; the caller closes it.

        *protocol*: the WebSocket subprotocol. *message_bytes_max*: maximum size of a received
        message. Raises: ApiError with the status if the server does not accept it;
        UnavailableError without an answer.
        """
        # The package has no WebSocket of its own in this client. Its session has the TLS context,
        # the headers for impersonation and the proxy of the environment.
        await self._renew_credentials()
        prepared = await self._api.param_serialize(
            "GET", path, None, list(query.items()), {}, None, auth_settings=[BEARER]
        )
        url, headers = prepared[1], prepared[2]
        rest, settings = self._api.rest_client, self._api.configuration
        if rest.pool_manager is None:  # the package creates it with the first call
            rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001 there is no other way
        opening = rest.pool_manager.ws_connect(
            url,
            protocols=(protocol,),
            headers=headers,
            max_msg_size=message_bytes_max,
            proxy=settings.proxy,
            proxy_headers=settings.proxy_headers,
            server_hostname=settings.tls_server_name,
        )
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                return await opening
        except aiohttp.WSServerHandshakeError as fault:
            raise ApiError(fault.status, fault.message) from fault
        except (TimeoutError, aiohttp.ClientError, OSError) as fault:
            raise _unreachable(fault) from fault

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str | None] | None = None,
        seconds_max: float = CALL_SECONDS_MAX,
        tries_max: int = CALL_TRIES_MAX,
        patch_type: str = MERGE_PATCH,
    ) -> bytes:
        """Send a request and return the body of the answer; retry after a 429.

        *method*: the HTTP method. *seconds_max*: timeout of each try. *tries_max*: maximum number
        of tries while the server answers 429, with pauses between them. *patch_type*: content type
        of a PATCH. Raises: ApiError with the status, PolicyRefusedError if a policy for Ebb's own
        accounts refused it, ConflictError for 409, UnavailableError without an answer.
        """

        async def once() -> bytes:
            call = self._call(
                method,
                path,
                query=query,
                body=body,
                seconds_max=seconds_max,
                patch_type=patch_type,
            )
            try:
                raw = await self._read(await call)
            except PolicyRefusedError as fault:
                self.observe_patch(path, fault)
                raise
            if method == "PATCH":
                self.observe_patch(path, None)
            return raw

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
                seconds = fault.retry_after_seconds or 0
                await self._sleep(
                    min(max(seconds, CALL_RETRY_SECONDS_MIN), CALL_RETRY_SECONDS_MAX)
                )
        raise AssertionError("the last try returns or raises")

    async def find(
        self, path: str, *, seconds_max: float = CALL_SECONDS_MAX, tries_max: int = CALL_TRIES_MAX
    ) -> bytes | None:
        """Return the object at *path* as raw JSON, or None if it does not exist.

        *seconds_max*: timeout of each try. *tries_max*: maximum number of tries while the server
        answers 429. Raises: ApiError for another status than 404, UnavailableError without an
        answer.
        """
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
        accept_encoding: str = "identity",
        patch_type: str = MERGE_PATCH,
    ) -> aiohttp.ClientResponse:
        """Send a request once, and return its response; the caller reads the body.

        Raises: ApiError, ConflictError or UnavailableError for every failure of the request.
        """
        given = [(name, value) for name, value in (query or {}).items() if value is not None]
        headers = {"Accept": "application/json", "Accept-Encoding": accept_encoding}
        if method == "PATCH":
            headers["Content-Type"] = patch_type
        await self._renew_credentials()
        code = NO_ANSWER
        try:
            prepared = await self._api.param_serialize(
                method, path, None, given, headers, body, auth_settings=[BEARER]
            )
            if self._request_seconds is not None:
                seconds_max = self._request_seconds or WATCH_SECONDS
            answer = await self._api.call_api(*prepared, _request_timeout=seconds_max)
            code = str(answer.response.status)
        except ApiException as fault:
            raise ApiError(fault.status or 0, str(fault.reason)) from fault
        except (TimeoutError, aiohttp.ClientError, OSError) as fault:
            raise _unreachable(fault) from fault
        finally:
            self._count_request(_verb(method, query or {}), code)
        response: aiohttp.ClientResponse = answer.response
        self.server_date = response.headers.get("Date", "")
        if response.status < 300:
            return response
        problem = _message(await self._read(response))
        refusal = _refusal(response, problem)
        if response.status == 401 and not refusal.denied:
            for credentials in self._renewed:
                credentials.refused()
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
                    response.close()  # else the rest would be read to reuse the connection
                    problem = f"the answer is larger than {self.answer_bytes_max} bytes"
                    raise TooLargeError(f"API server: {problem}")
                chunks.append(chunk)
            return b"".join(chunks)
        except (TimeoutError, aiohttp.ClientError, OSError) as fault:
            raise _unreachable(fault) from fault
        finally:
            chunks.clear()  # else a traceback would keep them in memory
            response.release()


def answered(decoder: msgspec.json.Decoder[Wire_], raw: Bytes) -> Wire_:
    """Decode the JSON of the API server's answer. Raises: GarbledError if it is invalid."""
    given = bytes(raw)
    try:
        return decoded(decoder.decode, given)
    except DECODE_ERRORS as fault:
        repaired = legible(given)
        if repaired != given:
            return answered(decoder, repaired)
        raise GarbledError(f"API server: unexpected answer: {fault}") from fault


def _verb(method: str, query: Mapping[str, str | None]) -> str:
    if method == "GET" and "limit" in query:
        return "list"
    return "watch" if "watch" in query else VERBS[method]


def _refusal(response: aiohttp.ClientResponse, problem: str) -> ApiError:
    """Return the error for an answer; *problem*: its message."""
    if denial := DENIAL.search(problem):
        policy, change = denial[1], one_line(denial[2])
        return PolicyRefusedError(response.status, problem, policy=policy, change=change)
    after = response.headers.get("Retry-After", "")
    return ApiError(response.status, problem, float(after) if after.isdecimal() else None)


def _message(body: bytes) -> str:
    """Return the error message of an answer: that of a v1 Status, or the text of a proxy."""
    try:
        return decoded(_STATUS.decode, body).message
    except DECODE_ERRORS:
        return body.decode(errors="replace")


def one_line(text: str) -> str:
    """Return a text of another program as one line, cut to 200 characters."""
    return f"{' '.join(text.split()):.200}"


def _unreachable(fault: BaseException) -> UnavailableError:
    if isinstance(fault, TimeoutError):
        return UnavailableError("API server: no answer in time")
    return UnavailableError(f"API server: {type(fault).__name__} {one_line(str(fault))}")


class _Status(msgspec.Struct):
    message: str = ""


_STATUS: Final = msgspec.json.Decoder(_Status)
_NO_CONFIGURATION: Final = (
    AttributeError,  # raised by the package for a file with another structure
    ConfigException,
    KeyError,
    OSError,
    TypeError,
    ValueError,
    yaml.YAMLError,
)
