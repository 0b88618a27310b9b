"""One module for each command, with its options; a command imports its modules when it runs."""
