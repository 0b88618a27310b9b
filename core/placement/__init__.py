"""Find nodes for pods as kube-scheduler would, and compute how much free capacity pods can use."""
