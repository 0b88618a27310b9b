"""A simulated cluster in virtual time that drives the same engine, scores and mutation.

What it takes from real programs was seen on them or recorded (tests/sim/recorded): the scheduler's
scores, whom the ReplicaSet controller deletes, when an autoscaler adds and removes. Left out is,
and so its figures do not tell:

- of kube-scheduler: preemption, affinity, topology spread (but that by hostname which ReplicaSets'
  pods have by default), volumes, back-off of pods that wait (they are tried whenever something
  changes), and the time that scheduling takes;
- of the autoscaler: limits and balancing of node groups, failed scale-ups, zones and what they
  sell out; a new node is ready after one to two minutes, empties go ten at a time, and nodes with
  pods one at a time;
- of what keeps a node from being drained: that pods of kube-system do, and that Karpenter's
  annotation may hold for a time (it holds for good);
- of buffers: all but Ebb's own (`reserve.publish`), which the autoscaler keeps room for at once.
  It packs their pods largest first and takes the fullest nodes first; a real one takes them in the
  buffers' own order, and the nodes in turn from behind the last one that took a pod. In a model of
  that Ebb adds 13 nodes for 17 in the demo with seed 1, and 39 for 29 with seed 2; its cost is
  0.2 % lower and 0.1 % higher;
- of Karpenter: all; it consolidates by price, and asks of nodes what simulated groups do not have;
- of controllers: the grace in which a pod ends (it is gone at once), proportional scaling while a
  Deployment rolls out, minReadySeconds, failing pods, StatefulSets, disruption budgets;
- of HPAs: metrics that are late or wrong; of pods: use beyond or below their requests, images;
- of the programs of Ebb: the time that calls, watches and passes take, unless faults are played;
  evictions and Events;
- of the lower bound of the cost: that nodes are whole and that a pod runs on one of them; so no
  cluster reaches it;
- of the embedded workload: all that statistics.py leaves out. That half of the pods are replicas,
  how long these live, and when they are rolled out is assumed, not counted in a trace.
"""
