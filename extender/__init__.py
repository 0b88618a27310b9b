"""`ebb-extender`: compute node scores, and answer the prioritize calls of kube-scheduler."""
