"""Decode Kubernetes JSON into the model; every text and list has a bound."""
