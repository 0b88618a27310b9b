"""The rules that nominate nodes; `cluster_threshold` is the rule of the thesis and the default."""
