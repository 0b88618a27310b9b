"""Serve HTTP and TLS in every program, with limits on connections, time and memory."""
