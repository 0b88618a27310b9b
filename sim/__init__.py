"""Simulate a cluster in which Ebb's real code plans, marks and scores; time is virtual.

The scheduler's scores, the pods that a ReplicaSet controller deletes first, and the times of an
autoscaler were observed on real programs or recorded (tests/sim/recorded). The simulation leaves
out, and its figures do not include:

- kube-scheduler: preemption, affinity, topology spread (except the default constraint of
  ReplicaSets by hostname), volumes, backoff of Pending pods (every change triggers a retry), and
  the time that scheduling takes;
- the autoscaler: limits and balancing of node groups, failed scale-ups, zones and their shortages;
  a new node is Ready after one to two minutes, empty nodes are removed in batches of ten, and
  nodes with pods one at a time;
- reasons against a drain: pods of kube-system, and the duration in Karpenter's annotation, which
  blocks for good here;
- CapacityBuffers other than Ebb's own (`reserve.capacityBuffers`), for which the autoscaler adds
  capacity at once. It packs their pods largest first and uses the fullest nodes first. A real
  autoscaler uses the order of the buffers, and the nodes in turn after the last one that took a
  pod. A model of that adds 13 nodes instead of 17 in the demo with seed 1, and 39 instead of 29
  with seed 2; the cost is 0.2 % lower and 0.1 % higher;
- Karpenter: it consolidates by price, and uses properties that simulated node groups do not have;
- controllers: the termination grace period (pods end at once), proportional scaling during a
  rollout, minReadySeconds, failing pods, StatefulSets, PodDisruptionBudgets;
- surge moves: the time and the faults of writes; watches are one second late. HPAs see the
  additional replicas only in runs with surge moves (sim.hpa);
- HPAs: late or wrong metrics; pods: usage other than their requests, images;
- the programs of Ebb: the time of calls, watches and reconciliations, unless faults are simulated;
  evictions and Events;
- the lower bound of the cost: it may use parts of nodes and split a pod, so no cluster reaches it;
- the built-in load: everything that statistics.py leaves out. Half of its pods are replicas;
  their lifetimes and rollouts are assumptions, not counted in a trace.
"""
