"""How shapes and types are checked at run time: by beartype, for which, as for mypy, an int is a float (PEP 484)."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
