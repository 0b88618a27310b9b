"""The pure core that all programs share: no input, no output, and time is an argument."""
