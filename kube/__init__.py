"""Everything between the API server and the core: client, watches, decoding, stores."""
