"""Filters of kube-scheduler: whether a node admits a pod, with the pods that run there."""
