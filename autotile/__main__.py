"""`python -m autotile`."""

from autotile.cli import main

if __name__ == "__main__":
    main()
