"""The output formats; each writes every answer."""
