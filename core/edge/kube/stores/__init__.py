"""Read and write single objects of the API server, for several programs: Nodes, Pods, Events."""
