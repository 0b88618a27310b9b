"""Configuration files: valid ones, and invalid ones with one error each."""

from collections.abc import Sequence
from typing import Any

from core.config.settings import API_VERSION, KIND

HEAD = {"apiVersion": API_VERSION, "kind": KIND}
Change = dict[str, Any]


def selecting(expression: Change) -> Change:
    """Return a pool that selects nodes by one expression."""
    return {"pools": [{"name": "a", "selector": {"matchExpressions": [expression]}}]}


GOOD: Sequence[Change] = (
    {},
    {"mode": "enforce", "policy": "ClusterThreshold", "podDeletionCost": "enabled"},
    {"policy": "ExcessNodes", "excessNodes": {"threshold": 1.5}},
    {"underutilizedCount": {"poolLabel": "a.b/c", "pools": {"": {}, "a.b": {"limit": "75%"}}}},
    {"underutilizedCount": {"pools": {"a": {"enabled": True, "limit": "75%", "required": 5}}}},
    {"policy": "NodeUtilization", "nodeUtilization": {"utilization": "40%", "keepSystem": False}},
    {
        "unneededTime": "0s",
        "noScheduleAfter": "never",
        "stabilizationWindow": "2000ms",
        "deadline": "1h30m",
    },
    {"noScheduleAfter": "30m", "balanceZones": False, "headroom": 0},
    {"thresholds": {"cpu": "62.5%"}, "hysteresis": "0%"},
    {"reserve": {"percentile": "99.5%"}},
    {"usableCapacity": "all"},
    {
        "usableCapacity": {
            "minCPU": "100m",
            "minMemory": 90,
            "maxCPUPerGB": "3.6",
            "maxGBPerCPU": 20,
        }
    },
    {"prices": [{"nodeSelector": {"a": "b"}, "price": 0.096}]},
    {"minSavings": 0.05},
    {"minSavings": "20"},
    {"schedule": [], "pauseUntil": "2026-12-27T08:00:00+01:00"},
    {
        "schedule": [
            {"start": "0 22 * * mon-fri", "duration": "8h", "timeZone": "Europe/Berlin"},
            {"start": "*/30 0 1,15 * 6", "duration": "1m"},
        ]
    },
    {"budgets": {"maxMarked": 3, "maxNewMarks": "10%", "period": "0s", "minNodes": 6}},
    {
        "pools": [
            {
                "name": "a",
                "selector": {"matchLabels": {"a": "b"}},
                "maxMarked": "25%",
                "minNodes": 2,
            }
        ]
    },
    selecting({"key": "a.b/c", "operator": "Exists"}),
    {
        "pools": [
            {
                "name": "a",
                "selector": {
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [
                        {"key": "c", "operator": "NotIn", "values": ["d", ""]},
                        {"key": "e", "operator": "DoesNotExist"},
                    ],
                },
            }
        ]
    },
    {"clusterAutoscaler": {"status": "autoscaler/status.ca"}},
    {"clusterAutoscaler": {"status": f"{'a' * 63}/{'b' * 63}"}},
    {
        "pools": [
            {"name": "a", "selector": {"matchLabels": {"a": "b"}}, "thresholds": {"cpu": "90%"}}
        ]
    },
    {
        "cooldown": {"delayAfterAdd": "0s"},
        "scaleDownProtection": {"afterUnmark": "5m"},
    },
    {"eviction": {"mode": "enabled"}},
    {"eviction": {"mode": "disabled", "after": "0s", "maxAtOnce": 100}},
    {"schedulers": ["default-scheduler", "team.example/bin-packing"]},
    {"schedulers": []},
    {"leavingTaints": ["team.example/drain", "drain"]},
    {
        "leavingConditions": [
            {"type": "team.example/Draining"},
            {"type": "Healthy", "status": "False", "message": "shutting down", "cordoned": True},
        ]
    },
    {
        "defaultTopologySpread": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 5, "topologyKey": "a.b/c", "whenUnsatisfiable": "ScheduleAnyway"},
        ]
    },
    {"extender": {"score": "marks"}},
    {"extender": {"certDir": "a", "clientCAFile": "c"}},
    {"webhook": {"certDir": "a"}},
    {"controller": {"interval": "1s"}},
)
"""Fields besides the head of the file."""

FAULTY: Sequence[tuple[Change, str]] = (
    ({"apiVersion": "v1"}, "apiVersion"),
    ({"kind": None}, "kind"),
    ({"mode": "on"}, "mode"),
    ({"policy": "Other"}, "policy"),
    ({"podDeletionCost": "on"}, "podDeletionCost"),
    ({"eviction": True}, "eviction"),
    ({"eviction": "enabled"}, "eviction"),
    ({"eviction": {"mode": "on"}}, "eviction.mode"),
    ({"eviction": {"after": "never"}}, "eviction.after"),
    ({"eviction": {"maxAtOnce": 0}}, "eviction.maxAtOnce"),
    ({"eviction": {"maxAtOnce": 101}}, "eviction.maxAtOnce"),
    ({"eviction": {"maxAtOnce": "10%"}}, "eviction.maxAtOnce"),
    ({"eviction": {"maxPods": 1}}, "eviction.maxPods"),
    ({"unneededTime": "10"}, "unneededTime"),
    ({"unneededTime": ""}, "unneededTime"),
    ({"unneededTime": "500ms"}, "unneededTime"),
    ({"unneededTime": 600}, "unneededTime"),
    ({"thresholds": {"cpu": 80}}, "thresholds.cpu"),
    ({"thresholds": {"cpu": "0%"}}, "thresholds.cpu"),
    ({"reserve": {"percentile": "0%"}}, "reserve.percentile"),
    ({"thresholds": {"cpu": "100.1%"}}, "thresholds.cpu"),
    ({"thresholds": {"gpu": "80%"}}, "thresholds.gpu"),
    ({"thresholds": []}, "thresholds"),
    ({"hysteresis": "100%"}, "hysteresis"),
    ({"hysteresis": 0.05}, "hysteresis"),
    ({"usableCapacity": "maybe"}, "usableCapacity"),
    ({"usableCapacity": {"minCPU": "-1", "minMemory": "1", "maxCPUPerGB": 1, "maxGBPerCPU": 1}},
     "usableCapacity.minCPU"),
    ({"usableCapacity": {"minCPU": "1", "minMemory": "1", "maxCPUPerGB": 0, "maxGBPerCPU": 1}},
     "usableCapacity.maxCPUPerGB"),
    ({"usableCapacity": {"minCPU": "1", "minMemory": "1", "maxCPUPerGB": 1}},
     "usableCapacity.maxGBPerCPU"),
    ({"prices": {}}, "prices"),
    ({"prices": [{"price": "1"}]}, "prices[0].nodeSelector"),
    ({"prices": [{"nodeSelector": {"a": "b"}, "price": "-1"}]}, "prices[0].price"),
    ({"prices": [{"nodeSelector": {"a": 1}, "price": "1"}]}, "prices[0].nodeSelector"),
    ({"minSavings": -1}, "minSavings"),
    ({"minSavings": {"perHour": 1}}, "minSavings"),
    ({"schedule": {}}, "schedule"),
    ({"schedule": [{"start": "0 2 * * *", "duration": "1h"}] * 21}, "schedule"),
    ({"schedule": [{"start": "0 2 * * *"}]}, "schedule[0].duration"),
    ({"schedule": [{"duration": "1h"}]}, "schedule[0].start"),
    ({"schedule": [{"start": "daily", "duration": "1h"}]}, "schedule[0].start"),
    ({"schedule": [{"start": "0 2 * * *", "duration": "1h", "timeZone": "/"}]},
     "schedule[0].timeZone"),
    ({"pauseUntil": "2026-12-27"}, "pauseUntil"),
    ({"nodeUtilization": {"keepSystem": "yes"}}, "nodeUtilization.keepSystem"),
    ({"extender": {"score": "best"}}, "extender.score"),
    ({"controller": {"interval": "1"}}, "controller.interval"),
    ({"extender": {"clientCAFile": "a"}}, "extender.clientCAFile"),
    ({"webhook": {"certDir": ""}}, "webhook.certDir"),
    ({"schedulers": "default-scheduler"}, "schedulers"),
    ({"schedulers": ["a"] * 101}, "schedulers"),
    ({"schedulers": ["a", ""]}, "schedulers[1]"),
    ({"schedulers": ["a b"]}, "schedulers[0]"),
    ({"schedulers": ["a" * 254]}, "schedulers[0]"),
    ({"schedulers": [1]}, "schedulers[0]"),
    ({"defaultTopologySpread": [{"maxSkew": 1, "topologyKey": "zone"}]},
     "defaultTopologySpread[0].whenUnsatisfiable"),
    ({"defaultTopologySpread": [
        {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
     "defaultTopologySpread[0].maxSkew"),
    ({"leavingTaints": "a"}, "leavingTaints"),
    ({"leavingTaints": ["a"] * 101}, "leavingTaints"),
    ({"leavingTaints": ["a/b/c"]}, "leavingTaints[0]"),
    ({"leavingConditions": ["Draining"]}, "leavingConditions[0]"),
    ({"leavingConditions": [{"type": "a"}] * 101}, "leavingConditions"),
    ({"leavingConditions": [{"status": "True"}]}, "leavingConditions[0].type"),
    ({"leavingConditions": [{"type": "a", "status": True}]}, "leavingConditions[0].status"),
    ({"leavingConditions": [{"type": "a", "message": "b" * 65}]}, "leavingConditions[0].message"),
    ({"budgets": {"maxMarked": -1}}, "budgets.maxMarked"),
    ({"budgets": {"maxMarked": "0%"}}, "budgets.maxMarked"),
    ({"budgets": {"maxNewMarks": True}}, "budgets.maxNewMarks"),
    ({"budgets": {"minNodes": "10%"}}, "budgets.minNodes"),
    ({"budgets": {"windows": "1m"}}, "budgets.windows"),
    ({"pools": {}}, "pools"),
    ({"pools": [{"name": "a"}]}, "pools[0].selector"),
    ({"pools": [{"name": "a", "selector": {}}]}, "pools[0].selector.matchLabels"),
    ({"pools": [{"name": "a", "selector": {"matchExpressions": []}}]},
     "pools[0].selector.matchLabels"),
    ({"pools": [{"name": "a", "selector": {"matchLabels": {}}}]},
     "pools[0].selector.matchLabels"),
    ({"pools": [{"name": "a", "selector": {"matchLabels": {"a": "b"}, "a": 1}}]},
     "pools[0].selector.a"),
    ({"pools": [{"selector": {"matchLabels": {"a": "b"}}}]}, "pools[0].name"),
    (selecting({"key": "a"}), "pools[0].selector.matchExpressions[0].operator"),
    (selecting({"key": "a", "operator": "Gt"}),
     "pools[0].selector.matchExpressions[0].operator"),
    (selecting({"key": "a", "operator": "In"}), "pools[0].selector.matchExpressions[0].values"),
    (selecting({"key": "a", "operator": "Exists", "values": ["b"]}),
     "pools[0].selector.matchExpressions[0].values"),
    ({"clusterAutoscaler": {"status": "a"}}, "clusterAutoscaler.status"),
    ({"clusterAutoscaler": {"status": "a/"}}, "clusterAutoscaler.status"),
    ({"clusterAutoscaler": {"status": "a/b/c"}}, "clusterAutoscaler.status"),
    ({"clusterAutoscaler": {"status": "A/b"}}, "clusterAutoscaler.status"),
    ({"clusterAutoscaler": {"status": f"{'a' * 64}/b"}}, "clusterAutoscaler.status"),
    ({"clusterAutoscaler": {"status": f"a/{'b' * 254}"}}, "clusterAutoscaler.status"),
    ({"balanceZones": "yes"}, "balanceZones"),
    ({"headroom": 101}, "headroom"),
    ({"cooldown": {"delayAfterAdd": 10}}, "cooldown.delayAfterAdd"),
    ({"noScheduleAfter": "soon"}, "noScheduleAfter"),
    ({"thresholdz": {}}, "thresholdz"),
    ({"excessNodes": {"threshold": -1}}, "excessNodes.threshold"),
    ({"excessNodes": {"threshold": "-0.1"}}, "excessNodes.threshold"),
    ({"underutilizedCount": {"poolLabel": "-"}}, "underutilizedCount.poolLabel"),
    ({"underutilizedCount": {"pools": []}}, "underutilizedCount.pools"),
    ({"underutilizedCount": {"pools": {"-": {}}}}, "underutilizedCount.pools.-"),
    ({"underutilizedCount": {"pools": {"a": {"enabled": True, "limit": "9%"}}}},
     "underutilizedCount.pools.a.required"),
    ({"underutilizedCount": {"pools": {"a": {"limit": "0%"}}}},
     "underutilizedCount.pools.a.limit"),
    ({"underutilizedCount": {"pools": {"a": {"limits": "9%"}}}},
     "underutilizedCount.pools.a.limits"),
)  # fmt: skip
"""Errors that a JSON schema can detect, with the path that the reader reports."""

BEYOND: Sequence[tuple[Change, str]] = (
    ({"unneededTime": "721h"}, "unneededTime"),
    ({"deadline": "1s"}, "deadline"),
    ({"pools": [{"name": "a", "selector": {"matchLabels": {"a": "b"}}}] * 2}, "pools[1].name"),
    ({"schedule": [{"start": "0 25 * * *", "duration": "1h"}]}, "schedule[0].start"),
    ({"schedule": [{"start": "0 2 * * *", "duration": "1s"}]}, "schedule[0].duration"),
    (
        {"schedule": [{"start": "0 2 * * *", "duration": "1h", "timeZone": "Mars"}]},
        "schedule[0].timeZone",
    ),
    ({"pauseUntil": "2026-13-27T08:00:00Z"}, "pauseUntil"),
)
"""Errors that no JSON schema can detect, such as bounds of durations and duplicate names."""
