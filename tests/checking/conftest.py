import sys
from pathlib import Path

# The NumPy op is shared by the tests beside it, random compositions by the numerics'; tests are no package.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "numerics"))
