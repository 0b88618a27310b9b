"""Find nodes for pods: kube-scheduler's filters, first-fit decreasing, usable capacity."""
