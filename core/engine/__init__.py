"""One pass: which nodes can go together now, and why the others stay."""
