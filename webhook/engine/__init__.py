"""The engine at work: who leads, when it looks, how it writes."""
