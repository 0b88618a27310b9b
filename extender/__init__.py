"""The scheduler extender: scores nodes so that new pods stay away from marked ones."""
