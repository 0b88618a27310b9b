"""`ebb-controller`: watch the cluster, reconcile while leading, write, evict and publish."""
