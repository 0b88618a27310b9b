"""May this pod run on that node, beside those pods: kube-scheduler's filters."""
