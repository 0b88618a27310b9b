"""First-fit decreasing: where pods would go."""
