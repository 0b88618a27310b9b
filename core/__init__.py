"""The pure core that all programs share, and the only place for input and output, `edge`."""
