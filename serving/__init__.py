"""What programs share to serve: HTTP, TLS, connections, and the limits on all of them."""
