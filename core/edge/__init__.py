"""All input and output that programs share: files, HTTP, TLS, metrics, logs, the clock."""
