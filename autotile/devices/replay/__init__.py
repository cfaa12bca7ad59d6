"""A device that answers from a recorded search: no GPU, no compiler, and nothing that is kept."""
