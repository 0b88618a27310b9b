"""Decide surge moves: which pods to replace before they are deleted, and each step of a move.

A surge move detaches a pod on a marked node from its ReplicaSet, which creates a new pod. When the
new pod is available, the move gives the old one back with the lowest deletion cost, so the
ReplicaSet controller deletes it. Nothing but the pod is written.
"""
