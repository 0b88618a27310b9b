"""Filters of kube-scheduler: whether a pod can run on a node beside the pods that are there."""
