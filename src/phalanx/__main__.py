"""`python -m phalanx`: the command line, where no script of that name is on the PATH."""

from phalanx.cli import main

if __name__ == "__main__":
    main(prog_name="phalanx")
