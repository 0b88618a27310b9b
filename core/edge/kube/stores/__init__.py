"""Read and write single objects of the API server that more than one program needs."""
