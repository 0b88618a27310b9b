"""First-fit decreasing: find nodes for pods, with one integer for all resources."""
