"""The filters of kube-scheduler: may this pod run on that node, beside those pods."""
