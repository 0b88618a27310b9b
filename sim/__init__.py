"""Simulate a cluster in which Ebb's real code plans, marks and scores; time is virtual.

The scores of kube-scheduler, the order in which the ReplicaSet controller deletes pods, and the
times of Cluster Autoscaler were recorded from real programs (tests/sim/recorded). The simulation
leaves out the following, so its results do not include their effects:

- kube-scheduler: preemption, preferred affinity, ScheduleAnyway (except the default constraint of
  ReplicaSets by hostname), volumes, backoff of Pending pods (any change in the cluster triggers a
  retry of all), and the time that scheduling takes;
- Cluster Autoscaler: inter-pod constraints, limits and balancing of node groups, failed scale-ups,
  zones and their shortages; a new node is Ready after one to two minutes, empty nodes are removed
  in batches of ten, and nodes with pods one at a time;
- reasons against the removal of a node with pods: pods of kube-system, and a duration in the
  annotation karpenter.sh/do-not-disrupt, which blocks without end in the simulation;
- CapacityBuffers other than Ebb's own, for which the autoscaler adds
  capacity at once. The simulated autoscaler packs their pods largest first, onto the fullest nodes
  first. A real one packs them in the order of the buffers, and continues after the node that took
  the last pod. With a model of that order, it adds 13 nodes instead of 17 in the demo with seed 1,
  and 39 instead of 29 with seed 2; the cost is 0.2 % lower and 0.1 % higher;
- Karpenter: it consolidates by price, and uses properties that simulated node groups do not have;
- controllers: the termination grace period (pods end at once), proportional scaling during a
  rollout, failing pods, StatefulSets, PodDisruptionBudgets;
- surge moves (a pod on a marked node is detached from its ReplicaSet until another one is
  available): the time and the faults of writes, other controllers whose selectors match the pod,
  and ResourceQuotas; watches are up to one second late. HPAs measure the pods as they are only in
  runs with surge moves (sim.hpa);
- HPAs: late or wrong metrics;
- pods: usage that differs from their requests, and images;
- the programs of Ebb: the time that calls, watches and reconciliations take (except in tests with
  faults), evictions and Events;
- the built-in load: everything that statistics.py leaves out. Half of its pods are replicas of
  Deployments; their lifetimes and rollouts are assumptions, not counted in a trace.

The lower bound of the cost may use parts of nodes and split a pod, so no cluster reaches it.
"""
