"""python -m mb VERB...: the same as mb."""

import sys

from mb.main import main

sys.exit(main())
