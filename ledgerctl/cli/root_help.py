"""The root help as stored text: printed without loading anything; a test keeps it true."""

ROOT_HELP = """"""
