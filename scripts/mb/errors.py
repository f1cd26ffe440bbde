"""The one exception for whatever a user or a machine can get wrong."""

from mb.exit_codes import ExitCode


class UserError(Exception):
    """What is wrong, where, and what would do, in one line; `code` is what the process exits with."""

    def __init__(self, message, code=ExitCode.NO_DATA):
        super().__init__(message)
        self.code = code
