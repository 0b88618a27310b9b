"""What is to be written on Nodes and Pods, given a plan."""
