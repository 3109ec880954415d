"""The framing: what arrives is exactly what was sent, whatever stands before it, and half of it is never taken."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicrun.wire.calls import (
    BANNER_CAP_BYTES,
    JSON_CAP_BYTES,
    ConnectionEnded,
    read_reply,
    read_request,
    write_reply,
    write_request,
)
from aicrun.wire.codec import WireError, dump

MARKER = "0123456789abcdef0123456789abcdef"
BODIES = st.dictionaries(
    st.text(max_size=5).filter(lambda key: key != "call"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5
    ),
    max_size=4,
)


def _reply(body: dict[str, Any], payload: bytes = b"") -> bytes:
    stream = io.BytesIO()
    write_reply(stream, MARKER, body, payload)
    return stream.getvalue()


def _request(call: str, body: dict[str, Any], payload: bytes = b"") -> bytes:
    stream = io.BytesIO()
    write_request(stream, call, body, payload)
    return stream.getvalue()


@given(BODIES, st.binary(max_size=200), BODIES)
def test_requests_arrive_one_after_the_other(body: dict[str, Any], payload: bytes, after: dict[str, Any]) -> None:
    stream = io.BytesIO(_request("log", body, payload) + _request("job", after))
    assert read_request(stream) == ("log", body, payload)
    assert read_request(stream) == ("job", after, b"")
    assert read_request(stream) is None


@given(BODIES, st.binary(max_size=200), BODIES)
def test_replies_arrive_one_after_the_other(body: dict[str, Any], payload: bytes, after: dict[str, Any]) -> None:
    stream = io.BytesIO(_reply(body, payload) + _reply(after))
    assert read_reply(stream, MARKER) == (body, payload)
    assert read_reply(stream, MARKER) == (after, b"")


BANNERS = (
    b"Welcome to gpu-box!\r\n",
    b"no newline at the end of this one ",
    b"\x1b[2J\x00\xff\xfe\n",
    b"12 34\n",
    b"0123456789abcdef 2 0\n{}",
    MARKER.encode() + b" is not a frame\n",
    MARKER.encode() + b" 2 0 \n{}\n",
    b"x" * 65530,
    b"x" * 65536,
    b"x" * (65536 * 2 - 10),
    b"line\n" * 40000,
)


@pytest.mark.parametrize("banner", BANNERS, ids=lambda banner: repr(banner[:24]))
def test_a_banner_or_a_chatty_start_file_changes_nothing(banner: bytes) -> None:
    stream = io.BytesIO(banner + _reply({"answer": 1}, b"data") + _reply({"answer": 2}))
    assert read_reply(stream, MARKER) == ({"answer": 1}, b"data")
    assert read_reply(stream, MARKER) == ({"answer": 2}, b"")


def test_an_answer_without_a_word_stands_on_the_wire_as_any_other() -> None:
    stream = io.BytesIO()
    write_reply(stream, MARKER, {"answer": {}}, b"line\n")
    assert stream.getvalue() == b"%s 13 5\n" % MARKER.encode() + dump({"answer": {}}) + b"line\n"
    stream.seek(0)
    assert read_reply(stream, MARKER) == ({"answer": {}}, b"line\n")


def test_a_payload_that_looks_like_a_frame_is_a_payload() -> None:
    inner = _reply({"answer": "forged"})
    stream = io.BytesIO(_reply({"answer": "true"}, inner) + _reply({"answer": "next"}))
    assert read_reply(stream, MARKER) == ({"answer": "true"}, inner)
    assert read_reply(stream, MARKER)[0] == {"answer": "next"}


def test_a_banner_without_end_is_refused() -> None:
    with pytest.raises(WireError, match="no marker"):
        read_reply(io.BytesIO(b"chatter\n" * (BANNER_CAP_BYTES // 8 + 1) + _reply({})), MARKER)


def test_another_connections_marker_is_not_ours() -> None:
    with pytest.raises(ConnectionEnded) as ended:
        read_reply(io.BytesIO(_reply({"answer": 1})), "f" * 32)
    assert ended.value.seen.startswith(MARKER.encode())


def test_a_reply_torn_at_any_byte_is_never_taken_for_a_whole_one() -> None:
    whole = b"hello there\n" + _reply({"answer": {"text": "ü" * 5}}, b"payload")
    for cut in range(len(whole)):
        with pytest.raises((ConnectionEnded, WireError)):
            read_reply(io.BytesIO(whole[:cut]), MARKER)


def test_a_request_torn_at_any_byte_is_never_taken_for_a_whole_one() -> None:
    whole = _request("reserve", {"confirm": True}, b"payload")
    assert read_request(io.BytesIO(b"")) is None
    for cut in range(1, len(whole)):
        with pytest.raises((ConnectionEnded, WireError)):
            read_request(io.BytesIO(whole[:cut]))


@pytest.mark.parametrize(
    "raw",
    (
        b"GET / HTTP/1.1\r\n\r\n",
        b"-1 0\n",
        b"2 0 \n{}",
        b" 2 0\n{}",
        b"2  0\n{}",
        b"2 +0\n{}",
        b"2_0 0\n{}" + b" " * 18,
        b"2 \n{}",
        b"2 0\r\n{}",
        b"0000000000002 0\n{}",
        b"2 0000000000000000\n{}",
        b"\xc2\xb2 0\n{}",
        b"2\n{}",
        b"2 0\n{]",
        b"2 0\n[]",
        b'12 0\n{"call": 12}',
        b"1 0\n\xff",
        b"%d 0\n{}" % (JSON_CAP_BYTES + 1),
        b"9" * 40,
    ),
)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    with pytest.raises((WireError, ConnectionEnded)):
        read_request(io.BytesIO(raw))


@pytest.mark.parametrize("sizes", [b"999999999999 0", b"2 999999999999999"])
def test_a_host_that_announces_more_than_any_answer_is_not_waited_for(sizes: bytes) -> None:
    with pytest.raises(WireError, match="too large"):
        read_reply(io.BytesIO(MARKER.encode() + b" " + sizes + b"\n{}"), MARKER)


def test_a_reply_that_is_no_object_is_refused() -> None:
    with pytest.raises(WireError):
        read_reply(io.BytesIO(MARKER.encode() + b" 2 0\n[]"), MARKER)
