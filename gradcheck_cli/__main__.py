"""`python -m gradcheck_cli`: the command line, for where the script isn't on the path."""

from gradcheck_cli.cli.main import main

if __name__ == "__main__":
    main()
