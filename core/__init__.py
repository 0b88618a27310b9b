"""What the programs share: the words, the sums, the packing, the engine, the marks."""
