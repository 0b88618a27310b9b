"""Decide surge moves: which pods to replace before they are deleted, and each step of a move."""
