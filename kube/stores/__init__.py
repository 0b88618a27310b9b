"""Read and write single objects of the API server: Nodes, Pods, Leases, Events, evictions."""
