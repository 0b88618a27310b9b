"""The API server: calls (client) and watches (watch); the only importer of `kubernetes`."""
