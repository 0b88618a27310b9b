"""`ebb top`: the state of the page as text that follows the cluster in a terminal."""
