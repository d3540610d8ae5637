"""What the APIs for recordings have in common."""

from http import HTTPStatus


class RestError(Exception):
    """An answer that is no transcript; each API has a form of its own for it.

    code: the API's name for it, where it has one. param: the option that is wrong.
    """

    def __init__(
        self, status: HTTPStatus, message: str, *, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
