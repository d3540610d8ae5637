"""`python -m daemon`: the same as `captiond`. Nothing that a spawned process must find lives here."""

import sys

from daemon.cli import main

sys.exit(main())
