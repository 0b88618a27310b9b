"""Read and write objects that only the controller uses: Leases, evictions, CapacityBuffers."""
