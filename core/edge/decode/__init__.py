"""From bytes to the model, object by object; one that cannot be read spoils no other."""
