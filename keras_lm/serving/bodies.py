"""The bodies of REST requests: read whole, unzipped, and never more of them than is allowed."""

import asyncio
import contextlib
import zlib

from starlette.exceptions import HTTPException

from keras_lm.serving.errors import invalid

PART = 2**16  # bytes to unzip at once


async def read_body(request, workers, most, take):
    """Return the body of a request, unzipped.

    Args:
        request: Starlette's `Request`.
        workers: executor whose threads unzip.
        most: int. The most bytes, both as sent and unzipped; of more, the answer is 413.
        take: function that reserves a number of bytes, see `BodyMemory.share`.
    """
    if int(request.headers.get("content-length", 0)) > most:
        raise _too_large(most)
    body = bytearray()
    async for chunk in request.stream():
        take(len(chunk))
        body += chunk
        if len(body) > most:
            raise _too_large(most)
    if request.headers.get("content-encoding", "").lower() == "gzip":
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(workers, _unzip, bytes(body), most, take)
    return bytes(body)


def _too_large(most):
    return HTTPException(413, f"The body has more than {most} bytes, the most that is read.")


async def read_to_the_end(request):
    """Read the rest of a body: if the connection closed now, the client would see no answer."""
    with contextlib.suppress(RuntimeError):  # the whole body has been read
        async for _ in request.stream():
            pass


def _unzip(body, most, take):
    # In parts, since a few kilobytes of gzip can unzip to more than fits into memory.
    unzip, unzipped = zlib.decompressobj(wbits=31), bytearray()
    try:
        for start in range(0, len(body), PART):
            rest = body[start : start + PART]
            while rest and not unzip.eof and len(unzipped) <= most:
                part = unzip.decompress(rest, PART)
                take(len(part))
                unzipped += part
                rest = unzip.unconsumed_tail
    except zlib.error as error:
        raise invalid("Failed to uncompress the gzipped body.") from error
    if len(unzipped) > most:
        raise _too_large(most)
    if not unzip.eof:
        raise invalid("The gzipped body is incomplete.")
    return bytes(unzipped)
