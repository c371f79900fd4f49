"""What the tables of attacks share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # what the tables share; they are no package
