"""What every program needs to run: clock, files, logs, metrics, and the frame of a process."""
