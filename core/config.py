"""The versioned configuration: one value for plan, simulation and programs.

`parse` takes the mapping that the YAML holds and reports every fault at once.
"""
