"""`python -m stapo` is `stapo`."""

from stapo.suite.cli import main

main()
