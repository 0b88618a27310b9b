"""The words: what a cluster is made of, frozen, and what is read off it alone."""
