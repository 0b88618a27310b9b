"""One module for each command; it imports what it needs when it runs."""
