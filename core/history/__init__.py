"""What Ebb has done and saved: the figures of days, and their format in two ConfigMaps."""
