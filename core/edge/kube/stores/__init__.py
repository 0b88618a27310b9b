"""Single objects at the API server that Ebb keeps: leases, pods, events, trust."""
