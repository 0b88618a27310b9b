"""`ebb unmark` and `ebb cleanup`: remove what Ebb has written in a live cluster."""
