"""Make the plan of a pass: removable nodes, limits and cooldowns, reserve, NoSchedule marks."""
