"""Decide surge moves: which pods to replace before they are deleted, and each step of a move.

A surge move adds a replica to a Deployment, waits until the new pod is available, and removes the
replica again. Ebb gives a pod on a marked node the lowest deletion cost, so the ReplicaSet
controller deletes this pod.
"""
