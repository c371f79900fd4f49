"""What the tests of the audit share lies beside them; they are no package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
