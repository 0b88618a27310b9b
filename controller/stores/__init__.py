"""Objects at the API server that only the controller writes."""
