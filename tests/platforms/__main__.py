"""Print the dump of one platform: `python -m tests.platforms kubeadm`."""

import argparse
import sys

from tests.platforms import PLATFORMS, dump

parser = argparse.ArgumentParser(prog="python -m tests.platforms", description=__doc__)
parser.add_argument("platform", choices=PLATFORMS)
sys.stdout.buffer.write(dump(parser.parse_args().platform))
