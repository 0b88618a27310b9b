"""Read how Ebb runs in a live cluster: its leader, the leader's report and its configuration."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from cli.input.cluster_input import Installation, Leader, Running
from controller.leader_report import PATH, REPORT_BYTES_MAX, REPORT_PORT_NAME, Report
from controller.names import CONFIG_KEY, CONFIG_MAP, LEASE
from core.config.document import built_in, parse
from core.config.settings import Config
from core.model.errors import ConfigError, UnavailableError
from kube import port_forward
from kube.client import ApiError, Client, answered
from kube.decode.field_decoding import unix_seconds
from kube.stores.lease import LeaseStore
from runtime import files
from runtime.version import NOT_INSTALLED, ebb_version

CALL_SECONDS_MAX: Final = 5.0
HOLDERS_MAX: Final = 2
"""Number of replicas whose report is read: the holder of the Lease, and the leader that it
names."""
NO_POD: Final = 404
"""Status of a port-forward to a pod that does not exist."""
UNKNOWN: Final = "delays, peak demand, cooldowns, surge moves and decisions are unknown"


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


_CONFIG_MAP: Final = msgspec.json.Decoder(_ConfigMap)
_REPORT: Final = msgspec.json.Decoder(Report)


@dataclass(slots=True)
class _Findings:
    """Failed reads of the running Ebb, each as a text with its error."""

    problems: list[str] = field(default_factory=list)
    config_unread: bool = False
    """A configuration of the running Ebb could not be read."""

    def cannot(self, what: str, fault: Exception) -> None:
        problem = "; ".join(str(fault).splitlines())
        self.problems.append(f"cannot read {what}: {problem}")


async def read_running(
    client: Client, installation: Installation
) -> tuple[Running, Config, str | None]:
    """Return the leading controller with its report, the configuration, and where it is from.

    The configuration is that of the command line, else of the leader, else of the ConfigMap, else
    the defaults. The third value names the leader or the ConfigMap for people, such as
    `ConfigMap ebb-system/ebb-config`; None for the command line and the defaults.
    """
    namespace, given, policy = installation
    findings = _Findings()
    leader = await read_leader(client, namespace)
    if leader.unread:
        findings.problems.append(f"cannot read the Lease {leader.lease}: {leader.problem}")
    config_map = f"ConfigMap {namespace}/{CONFIG_MAP}"
    stored = await _stored(client, namespace, config_map, policy, findings)
    report = None
    if leader.holder:
        report = await _report(client, namespace, leader.holder, findings)
        findings.problems += _other_version(report)
    used, source = given, None
    if used is None and report is not None:
        used, source = _in_force(report, policy, findings), f"leader {report.identity}"
    if used is None and stored is not None:
        used, source = stored, config_map
    config_unknown = used is None and findings.config_unread
    if used is None:
        used, source = built_in(policy), None
    return Running(leader, report, tuple(findings.problems), config_unknown), used, source


def _other_version(report: Report | None) -> Iterator[str]:
    """Yield a text if the leader has another version than this command."""
    own, theirs = ebb_version(), report.version if report else ""
    if theirs not in {"", own, NOT_INSTALLED} and own != NOT_INSTALLED:
        yield f"the leader has version {theirs}, this `ebb` has {own}, so their plans may differ"


def _in_force(report: Report, policy: str | None, findings: _Findings) -> Config | None:
    """Return the configuration in the leader's report; None if this version cannot read it.

    *policy*: replaces the configured policy. *findings*: receives the error.
    """
    try:
        return parse(report.configuration, f"leader {report.identity}", policy)
    except ConfigError as fault:
        findings.cannot(f"the configuration of the leader (version {report.version})", fault)
        findings.config_unread = True
        return None


async def read_leader(client: Client, namespace: str) -> Leader:
    """Return the leader according to its Lease; a failed read becomes its `problem`.

    *namespace*: namespace of Ebb.
    """
    key = f"{namespace}/{LEASE}"
    try:
        lease = await LeaseStore(client, namespace, LEASE, CALL_SECONDS_MAX).read()
    except UnavailableError as fault:
        answered = isinstance(fault, ApiError) and fault.forbidden
        return Leader(lease=key, problem=str(fault), unread=True, answered=answered)
    if lease is None:
        return Leader(lease=key, problem="not found, as no controller has run yet")
    return Leader(
        lease=key,
        holder=lease.holder,
        renewed_seconds=unix_seconds(lease.renewed),
        duration_seconds=lease.duration_seconds,
    )


async def _stored(
    client: Client, namespace: str, name: str, policy: str | None, findings: _Findings
) -> Config | None:
    """Return the configuration in Ebb's ConfigMap; None if it is missing or cannot be read.

    *name*: the ConfigMap as in error messages. *policy*: replaces the configured policy.
    *findings*: receives the error.
    """
    path = f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"
    try:
        raw = await client.find(path, seconds_max=CALL_SECONDS_MAX, tries_max=1)
        if raw is None:
            return None
        content = (answered(_CONFIG_MAP, raw).data or {}).get(CONFIG_KEY, "")
        return files.parse_config(content.encode(), f"{name}, {CONFIG_KEY}", policy)
    except (ConfigError, UnavailableError) as fault:
        findings.cannot(f"the {name}", fault)
        findings.config_unread = True
        return None


async def _report(
    client: Client, namespace: str, holder: str, findings: _Findings
) -> Report | None:
    """Return the report of the leader; None, and a text in *findings*, if it could not be read.

    *holder*: identity of the replica that is asked first, through a port-forward. If it does not
    lead, it names the leader, which is asked next.
    """
    for _ in range(HOLDERS_MAX):
        pod = holder.rpartition("_")[0] or holder
        try:
            raw = await port_forward.get(
                client, namespace, pod, REPORT_PORT_NAME, PATH, bytes_max=REPORT_BYTES_MAX
            )
            report = answered(_REPORT, raw)
        except UnavailableError as fault:
            if isinstance(fault, ApiError) and fault.status == NO_POD:
                findings.problems.append(
                    f"the pod {pod} of the leader does not exist in namespace {namespace}, "
                    f"so {UNKNOWN}"
                )
                return None
            findings.cannot(f"the report of the leader {pod}, so {UNKNOWN}", fault)
            return None
        if report.leading:
            return report
        if report.leader in ("", holder):
            break
        holder = report.leader
    findings.problems.append(f"no replica of ebb-controller leads at the moment, so {UNKNOWN}")
    return None
