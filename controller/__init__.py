"""`ebb-controller`: watch the cluster, make plans while leading, write, evict, and publish."""
