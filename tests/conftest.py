"""For all tests."""

import signal

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would all
# programs that they start: some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
