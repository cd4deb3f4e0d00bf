"""``python -m stayfinite`` is the ``stayfinite`` command."""

import sys

from stayfinite.cli import main

sys.exit(main())
