"""Who may not go, who cannot be placed, and who leaves late."""
