"""The recordings' service, over real sockets where it is reached by HTTP (tests/test_api.py has the answers)."""

from http import HTTPStatus

import pytest

from daemon.files.decoder import DecodingError
from daemon.files.service import restated
from daemon.files.transcription import RecognitionError, TooLongError
from daemon.files.upload import UploadError
from streaming.dialects.rest import RestError
from streaming.protocol import ProtocolError


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (UploadError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "x"), 413),
        (TooLongError(3.0), 413),
        (DecodingError("x"), 400),
        (ProtocolError("bad_audio", "x"), 400),
        (RecognitionError("x"), 500),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_failure_has_its_status(fault: Exception, status: int) -> None:
    with pytest.raises(RestError) as raised, restated():
        raise fault
    assert raised.value.status == status
    assert str(fault) in str(raised.value)


def test_what_nobody_expects_stays_a_fault() -> None:
    with pytest.raises(LookupError), restated():
        raise LookupError
