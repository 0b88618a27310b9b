"""The admission webhook, and the engine loop that its elected leader runs."""
