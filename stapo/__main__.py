"""`python -m stapo` is `stapo`."""

from stapo.cli import main

main()
