"""The admission webhook: reviews answered, certificates kept."""
