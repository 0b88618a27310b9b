"""The admission webhook: turns marks into taints, and keeps its own certificates."""
