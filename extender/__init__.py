"""`ebb-extender`: answer the prioritize calls of kube-scheduler with scores."""
