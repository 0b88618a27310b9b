"""The only place that uses the Kubernetes client: lists, watches, credentials."""
