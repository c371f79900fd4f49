import sys
from pathlib import Path

# The benchmarks are scripts beside each other; tests are no package. Last, so that they hide nobody's module.
sys.path.append(str(Path(__file__).parent))
