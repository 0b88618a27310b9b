"""Read the history of a real cluster and turn it into a load for the simulation."""
