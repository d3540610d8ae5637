import json
from http import HTTPStatus

from streaming.dialects import deepgram_rest, openai_rest
from streaming.dialects.rest import RestError


def test_each_api_has_its_form_of_an_error() -> None:
    error = RestError(HTTPStatus.BAD_REQUEST, "no such thing", code="odd", param="model")
    assert json.loads(openai_rest.error_body(error)) == {
        "error": {
            "message": "no such thing",
            "type": "invalid_request_error",
            "param": "model",
            "code": "odd",
        }
    }
    assert json.loads(deepgram_rest.error_body(error, "r")) == {
        "err_code": "odd",
        "err_msg": "no such thing",
        "request_id": "r",
    }


def test_a_fault_is_the_servers() -> None:
    error = RestError(HTTPStatus.SERVICE_UNAVAILABLE, "later")
    assert json.loads(openai_rest.error_body(error))["error"]["type"] == "server_error"
    assert json.loads(deepgram_rest.error_body(error, "r"))["err_code"] == "Service Unavailable"
