"""Configuration files: valid ones, and invalid ones with one error each."""

from collections.abc import Sequence
from typing import Any

from core.config.settings import API_VERSION, KIND

HEAD = {"apiVersion": API_VERSION, "kind": KIND}
Change = dict[str, Any]

GOOD: Sequence[Change] = (
    {},
    {"mode": "enforce", "policy": "ClusterThreshold", "podDeletionCost": "enabled"},
    {"policy": "ExcessNodes", "excessNodes": {"threshold": 1.5, "weights": {"cpu": "0"}}},
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
    {"thresholds": {"cpu": "62.5%"}, "releaseThresholds": {"memory": "100%"}},
    {"usability": "none"},
    {"usability": {"minCPU": "100m", "minMemory": 90, "maxCPUPerGB": "3.6", "maxGBPerCPU": 20}},
    {"prices": [{"nodeSelector": {"a": "b"}, "price": 0.096}]},
    {"minSavings": {"perHour": 0.05, "perMonth": "20"}},
    {"schedule": [], "pauseUntil": "2026-12-27T08:00:00+01:00"},
    {
        "schedule": [
            {"start": "0 22 * * mon-fri", "duration": "8h", "timeZone": "Europe/Berlin"},
            {"start": "*/30 0 1,15 * 6", "duration": "1m"},
        ]
    },
    {"budgets": {"maxMarked": 3, "maxInWindow": "10%", "window": "0s", "minNodes": 6}},
    {"pools": [{"name": "a", "nodeSelector": {"a": "b"}, "maxMarked": "25%", "minNodes": 2}]},
    {"pools": [{"name": "a", "matchExpressions": [{"key": "a.b/c", "operator": "Exists"}]}]},
    {
        "pools": [
            {
                "name": "a",
                "nodeSelector": {"a": "b"},
                "matchExpressions": [
                    {"key": "c", "operator": "NotIn", "values": ["d", ""]},
                    {"key": "e", "operator": "DoesNotExist"},
                ],
            }
        ]
    },
    {"clusterAutoscaler": {"statusNamespace": "autoscaler", "statusName": "status.ca"}},
    {"pools": [{"name": "a", "nodeSelector": {"a": "b"}, "thresholds": {"cpu": "90%"}}]},
    {
        "cooldown": {"delayAfterAdd": "0s"},
        "backoff": {"first": "1s"},
        "scaleDownProtection": {"afterRelease": "5m"},
    },
    {"eviction": "enabled"},
    {"eviction": "disabled", "drain": {"after": "0s", "timeout": "1s", "maxOnNode": 100}},
    {"drain": {"maxInNamespace": 1, "maxInCluster": 1}},
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
    {"extender": {"score": "marks", "staleAfter": "1m"}},
    {"extender": {"certFile": "a", "keyFile": "b", "clientCAFile": "c", "listen": "[::]:8443"}},
    {"webhook": {"certFile": "a", "keyFile": "b", "rotationSoak": "5s"}},
    {"controller": {"interval": "1s", "leaseDuration": "3s", "metricsListen": "[::1]:0"}},
)
"""Fields besides the head of the file."""

FAULTY: Sequence[tuple[Change, str]] = (
    ({"apiVersion": "v1"}, "apiVersion"),
    ({"kind": None}, "kind"),
    ({"mode": "on"}, "mode"),
    ({"policy": "Other"}, "policy"),
    ({"podDeletionCost": "on"}, "podDeletionCost"),
    ({"eviction": True}, "eviction"),
    ({"eviction": "on"}, "eviction"),
    ({"drain": {"after": "never"}}, "drain.after"),
    ({"drain": {"maxOnNode": 0}}, "drain.maxOnNode"),
    ({"drain": {"maxInNamespace": 101}}, "drain.maxInNamespace"),
    ({"drain": {"maxInCluster": "10%"}}, "drain.maxInCluster"),
    ({"drain": {"maxPods": 1}}, "drain.maxPods"),
    ({"unneededTime": "10"}, "unneededTime"),
    ({"unneededTime": ""}, "unneededTime"),
    ({"unneededTime": "500ms"}, "unneededTime"),
    ({"unneededTime": 600}, "unneededTime"),
    ({"thresholds": {"cpu": 80}}, "thresholds.cpu"),
    ({"thresholds": {"cpu": "0%"}}, "thresholds.cpu"),
    ({"thresholds": {"cpu": "100.1%"}}, "thresholds.cpu"),
    ({"thresholds": {"gpu": "80%"}}, "thresholds.gpu"),
    ({"thresholds": []}, "thresholds"),
    ({"usability": "maybe"}, "usability"),
    ({"usability": {"minCPU": "-1", "minMemory": "1", "maxCPUPerGB": 1, "maxGBPerCPU": 1}},
     "usability.minCPU"),
    ({"usability": {"minCPU": "1", "minMemory": "1", "maxCPUPerGB": 0, "maxGBPerCPU": 1}},
     "usability.maxCPUPerGB"),
    ({"usability": {"minCPU": "1", "minMemory": "1", "maxCPUPerGB": 1}},
     "usability.maxGBPerCPU"),
    ({"prices": {}}, "prices"),
    ({"prices": [{"price": "1"}]}, "prices[0].nodeSelector"),
    ({"prices": [{"nodeSelector": {"a": "b"}, "price": "-1"}]}, "prices[0].price"),
    ({"prices": [{"nodeSelector": {"a": 1}, "price": "1"}]}, "prices[0].nodeSelector"),
    ({"minSavings": {"perHour": -1}}, "minSavings.perHour"),
    ({"minSavings": {"perDay": 1}}, "minSavings.perDay"),
    ({"schedule": {}}, "schedule"),
    ({"schedule": [{"start": "0 2 * * *", "duration": "1h"}] * 21}, "schedule"),
    ({"schedule": [{"start": "0 2 * * *"}]}, "schedule[0].duration"),
    ({"schedule": [{"duration": "1h"}]}, "schedule[0].start"),
    ({"schedule": [{"start": "daily", "duration": "1h"}]}, "schedule[0].start"),
    ({"schedule": [{"start": "0 2 * * *", "duration": "1h", "timeZone": "/"}]},
     "schedule[0].timeZone"),
    ({"pauseUntil": "2026-12-27"}, "pauseUntil"),
    ({"nodeUtilization": {"keepStandalone": "yes"}}, "nodeUtilization.keepStandalone"),
    ({"extender": {"score": "best"}}, "extender.score"),
    ({"extender": {"listen": "nowhere"}}, "extender.listen"),
    ({"webhook": {"certFile": "a"}}, "webhook.certFile"),
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
    ({"budgets": {"maxInWindow": True}}, "budgets.maxInWindow"),
    ({"budgets": {"minNodes": "10%"}}, "budgets.minNodes"),
    ({"budgets": {"windows": "1m"}}, "budgets.windows"),
    ({"pools": {}}, "pools"),
    ({"pools": [{"name": "a"}]}, "pools[0].nodeSelector"),
    ({"pools": [{"nodeSelector": {"a": "b"}}]}, "pools[0].name"),
    ({"pools": [{"name": "a", "matchExpressions": [{"key": "a"}]}]},
     "pools[0].matchExpressions[0].operator"),
    ({"pools": [{"name": "a", "matchExpressions": [{"key": "a", "operator": "Gt"}]}]},
     "pools[0].matchExpressions[0].operator"),
    ({"pools": [{"name": "a", "matchExpressions": [{"key": "a", "operator": "In"}]}]},
     "pools[0].matchExpressions[0].values"),
    ({"pools": [{"name": "a", "matchExpressions": [
        {"key": "a", "operator": "Exists", "values": ["b"]}]}]},
     "pools[0].matchExpressions[0].values"),
    ({"clusterAutoscaler": {"statusName": "a/b"}}, "clusterAutoscaler.statusName"),
    ({"balanceZones": "yes"}, "balanceZones"),
    ({"headroom": 101}, "headroom"),
    ({"cooldown": {"delayAfterAdd": 10}}, "cooldown.delayAfterAdd"),
    ({"noScheduleAfter": "soon"}, "noScheduleAfter"),
    ({"scaleDownProtection": {"utilization": 50}}, "scaleDownProtection.utilization"),
    ({"thresholdz": {}}, "thresholdz"),
    ({"excessNodes": {"threshold": -1}}, "excessNodes.threshold"),
    ({"excessNodes": {"weights": {"cpu": "-0.1"}}}, "excessNodes.weights.cpu"),
    ({"excessNodes": {"weights": {"disk": 1}}}, "excessNodes.weights.disk"),
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
    ({"releaseThresholds": {"cpu": "79%"}}, "releaseThresholds.cpu"),
    ({"thresholds": {"cpu": "90%"}, "releaseThresholds": {"cpu": "85%"}}, "releaseThresholds.cpu"),
    ({"pools": [{"name": "a", "nodeSelector": {"a": "b"}}] * 2}, "pools[1].name"),
    ({"schedule": [{"start": "0 25 * * *", "duration": "1h"}]}, "schedule[0].start"),
    ({"schedule": [{"start": "0 2 * * *", "duration": "1s"}]}, "schedule[0].duration"),
    (
        {"schedule": [{"start": "0 2 * * *", "duration": "1h", "timeZone": "Mars"}]},
        "schedule[0].timeZone",
    ),
    ({"pauseUntil": "2026-13-27T08:00:00Z"}, "pauseUntil"),
    ({"backoff": {"first": "0s"}}, "backoff.first"),
    ({"drain": {"timeout": "0s"}}, "drain.timeout"),
    ({"excessNodes": {"weights": {"cpu": 0, "memory": "0.0"}}}, "excessNodes.weights"),
)
"""Errors that no JSON schema can detect, such as bounds of durations and duplicate names."""
