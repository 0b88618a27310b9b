"""Make the plan: removable nodes, limits and cooldowns, reserve, NoSchedule marks."""
