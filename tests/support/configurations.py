"""Configurations as people write them: good ones, and ones with a fault each."""

from collections.abc import Sequence
from typing import Any

from core.config.settings import API_VERSION, KIND

HEAD = {"apiVersion": API_VERSION, "kind": KIND}
Change = dict[str, Any]

GOOD: Sequence[Change] = (
    {},
    {"mode": "enforce", "policy": "ClusterThreshold", "scaleInOrder": "enabled"},
    {"policy": "ExcessNodes", "excessNodes": {"threshold": 1.5, "weights": {"cpu": "0"}}},
    {"underutilizedCount": {"poolLabel": "a.b/c", "pools": {"": {}, "a.b": {"limit": "75%"}}}},
    {"underutilizedCount": {"pools": {"a": {"enabled": True, "limit": "75%", "required": 5}}}},
    {"policy": "NodeUtilization", "nodeUtilization": {"utilization": "40%", "keepSystem": False}},
    {"delay": "0s", "hardAfter": "never", "peakWindow": "2000ms", "deadline": "1h30m"},
    {"hardAfter": "30m", "balanceZones": False, "headroom": 0},
    {"thresholds": {"cpu": "62.5%"}, "leaveThresholds": {"memory": "100%"}},
    {"usability": "none"},
    {"usability": {"minCPU": "100m", "minMemory": 90, "maxCPUPerGB": "3.6", "maxGBPerCPU": 20}},
    {"prices": [{"nodeSelector": {"a": "b"}, "price": 0.096}]},
    {"budgets": {"maxMarked": 3, "maxInWindow": "10%", "window": "0s", "minNodes": 6}},
    {"pools": [{"name": "a", "nodeSelector": {"a": "b"}, "maxMarked": "25%", "minNodes": 2}]},
    {"pools": [{"name": "a", "nodeSelector": {"a": "b"}, "thresholds": {"cpu": "90%"}}]},
    {"cooldown": {"afterNodeAdd": "0s"}, "backoff": {"first": "1s"}, "handOver": {"guard": "5m"}},
    {"taintKey": "own.example/key"},
    {"extender": {"score": "marks", "answers": "compact", "staleAfter": "1m"}},
    {"extender": {"certFile": "a", "keyFile": "b", "clientCAFile": "c", "listen": "[::]:8443"}},
    {"webhook": {"certFile": "a", "keyFile": "b", "interval": "1s", "leaseDuration": "3s"}},
)
"""Of the fields beside the head."""

FAULTY: Sequence[tuple[Change, str]] = (
    ({"apiVersion": "v1"}, "apiVersion"),
    ({"kind": None}, "kind"),
    ({"mode": "on"}, "mode"),
    ({"policy": "Other"}, "policy"),
    ({"scaleInOrder": "on"}, "scaleInOrder"),
    ({"delay": "10"}, "delay"),
    ({"delay": ""}, "delay"),
    ({"delay": "500ms"}, "delay"),
    ({"delay": 600}, "delay"),
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
    ({"nodeUtilization": {"keepStandalone": "yes"}}, "nodeUtilization.keepStandalone"),
    ({"extender": {"score": "marks", "answers": "short"}}, "extender.answers"),
    ({"extender": {"score": "pack", "answers": "compact"}}, "extender.answers"),
    ({"extender": {"listen": "nowhere"}}, "extender.listen"),
    ({"webhook": {"certFile": "a"}}, "webhook.certFile"),
    ({"taintKey": "-"}, "taintKey"),
    ({"budgets": {"maxMarked": -1}}, "budgets.maxMarked"),
    ({"budgets": {"maxMarked": "0%"}}, "budgets.maxMarked"),
    ({"budgets": {"maxInWindow": True}}, "budgets.maxInWindow"),
    ({"budgets": {"minNodes": "10%"}}, "budgets.minNodes"),
    ({"budgets": {"windows": "1m"}}, "budgets.windows"),
    ({"pools": {}}, "pools"),
    ({"pools": [{"name": "a"}]}, "pools[0].nodeSelector"),
    ({"pools": [{"nodeSelector": {"a": "b"}}]}, "pools[0].name"),
    ({"balanceZones": "yes"}, "balanceZones"),
    ({"headroom": 101}, "headroom"),
    ({"cooldown": {"afterNodeAdd": 10}}, "cooldown.afterNodeAdd"),
    ({"hardAfter": "soon"}, "hardAfter"),
    ({"handOver": {"utilization": 50}}, "handOver.utilization"),
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
"""What a schema can refuse, and the path that the reader names."""

BEYOND: Sequence[tuple[Change, str]] = (
    ({"delay": "721h"}, "delay"),
    ({"deadline": "1s"}, "deadline"),
    ({"leaveThresholds": {"cpu": "79%"}}, "leaveThresholds.cpu"),
    ({"thresholds": {"cpu": "90%"}, "leaveThresholds": {"cpu": "85%"}}, "leaveThresholds.cpu"),
    ({"pools": [{"name": "a", "nodeSelector": {"a": "b"}}] * 2}, "pools[1].name"),
    ({"backoff": {"first": "0s"}}, "backoff.first"),
    ({"excessNodes": {"weights": {"cpu": 0, "memory": "0.0"}}}, "excessNodes.weights"),
)
"""What no schema can refuse: bounds of a duration, one field beside another, names that differ."""
