import sys
from pathlib import Path

# The table of functions is shared by tests and by the scripts beside them; tests are no package.
sys.path.insert(0, str(Path(__file__).parent))
