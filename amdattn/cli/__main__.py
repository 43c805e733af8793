"""`python -m amdattn.cli`."""

from amdattn.cli import main

if __name__ == "__main__":
    main()
