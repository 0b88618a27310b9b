"""Check of clocks: of this machine, of the API server and of the leader."""

from typing import Final

from cli.doctor.finding import Check, CheckResult, Evidence, Facts, ok, problem, unknown

SKEW_SECONDS_MAX: Final = 5
"""Maximum difference of two clocks; answers of the API server have a precision of one second."""


def _clocks(facts: Facts) -> CheckResult:
    times = facts.setup.api_time.value
    if times is None:
        return unknown(facts.setup.api_time.absent, "run `ebb doctor` against the live cluster")
    evidence = []
    ahead = times.local_seconds - times.server_seconds
    if abs(ahead) > SKEW_SECONDS_MAX:
        evidence.append(Evidence("this machine", "seconds ahead of the API server", str(ahead)))
    leader = facts.cluster_input.leader
    renewed = leader.renewed_seconds if leader else None
    if leader and renewed is not None and renewed - times.server_seconds > SKEW_SECONDS_MAX:
        by = str(renewed - times.server_seconds)
        evidence.append(Evidence(f"leader {leader.holder}", "seconds ahead of the API server", by))
    if evidence:
        return problem(
            f"a clock differs from the API server's by more than {SKEW_SECONDS_MAX} s", evidence
        )
    if leader is not None and leader.unread:
        return unknown(
            "the clocks of this machine and the API server agree, but the Lease "
            f"{leader.lease} of the leader cannot be read: {leader.problem}",
            "run `ebb doctor` with the Role ebb-viewer "
            "(docs/install-reference.md#rights-of-people-who-run-ebb)",
        )
    if leader is None or not leader.leads(times.server_seconds):
        # An old renewal may mean a slow clock, or that no replica leads.
        return unknown(
            "the clocks of this machine and the API server agree, but no replica has renewed the "
            "Lease of the leader in time",
            "find the leader with `ebb status`, and compare the clock of the leader's node with "
            "the clock of the control plane",
        )
    return ok(
        "the clocks of this machine, the API server and the leader agree within "
        f"{SKEW_SECONDS_MAX} s"
    )


CHECKS: Final = (
    Check(
        code="clocks",
        question="Do the clocks of your machine, the API server and the leader agree?",
        effect="ages and cooldowns are computed with a wrong time, and new certificates may not "
        "be valid yet",
        fix="synchronize the clock of the machine or node in the evidence by NTP",
        run=_clocks,
    ),
)
