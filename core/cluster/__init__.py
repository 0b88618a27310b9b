"""Build a Cluster from decoded API objects, and complete its pods as kube-scheduler sees them."""
