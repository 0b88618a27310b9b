"""`ebb page`: serve the page of a cluster on 127.0.0.1, and follow the cluster by watches."""
