"""Who is nominated for removal: one file a policy."""
