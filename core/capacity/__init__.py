"""What nodes offer, what of it is usable, and the sums that thresholds hold on."""
