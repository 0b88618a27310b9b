"""The output formats; each format can write every answer."""
