"""The controller: watches the cluster, elects a leader, reconciles and writes."""
