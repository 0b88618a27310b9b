"""The keys that Ebb writes on Nodes, and how it reads them back."""
