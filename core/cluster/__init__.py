"""Assemble a Cluster from decoded objects, with what Ebb assumes of pods that do not say it."""
