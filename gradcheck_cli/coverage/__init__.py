"""Which gradients somebody wrote in a package, and which of them a run has checked."""
