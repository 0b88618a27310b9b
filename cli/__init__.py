"""The command `ebb`: thin commands over the core and the simulation."""
