"""What a leader stores in two ConfigMaps: the figures of days, and the arrivals of the reserve."""
