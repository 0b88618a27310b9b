"""Define the keys of labels and annotations that Ebb writes on Nodes, and read them back."""
