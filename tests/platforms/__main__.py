"""Writes the dump of one platform to standard output: `python -m tests.platforms kubeadm`."""

import sys

from tests.platforms import dump

sys.stdout.buffer.write(dump(sys.argv[1]))
