"""The only door to the Kubernetes client: lists, watches, credentials."""
