"""What Ebb writes on Nodes and Pods, and how it reads that back."""
