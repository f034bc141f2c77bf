"""Uploads a large file to S3 in parts. The parts become one object, or there is no object under the key.

boto3's own `upload_file` is not used: it does not accept If-None-Match and does not return the ETag of the object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from s3transfer.utils import ReadFileChunk

from tallystick.store.answers import Verdict, classify

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PARTS_MAX: Final = 10_000  # S3 User Guide, "Amazon S3 multipart upload limits"
_CHECKSUM: Final = (
    "CRC32"  # boto3's default; each part must use the algorithm with which the upload began
)


def create_in_parts(
    path: Path,
    *,
    once: S3Client,
    patient: S3Client,
    place: Mapping[str, str],
    written: Mapping[str, str],
    part_bytes: int,
    checksums: bool,
) -> Mapping[str, Any]:
    """Upload a file in parts if there is no object; return S3's response to CompleteMultipartUpload.

    `place` contains bucket and key and is sent with each request; `written` is sent with the first. `patient` streams the
    parts from the file and retries: the same part with the same bytes replaces itself. `once` sends the requests that
    begin and complete the upload, each in one attempt. If the upload provably did not complete, it is aborted. If the
    response to the last request is lost, nothing is aborted, and any parts are left to the bucket's rule for incomplete
    uploads.
    Raises the errors of boto3.
    Safe to repeat: each call is an upload of its own, and because of `If-None-Match: *` only one can make the object.
    """
    algorithm = {"ChecksumAlgorithm": _CHECKSUM} if checksums else {}
    begin: Callable[..., Any] = once.create_multipart_upload
    upload = {**place, "UploadId": begin(**place, **written, **algorithm)["UploadId"]}
    ending = False
    try:
        parts = _parts(path, patient, {**upload, **algorithm}, part_bytes)
        ending = True
        end: Callable[..., Any] = once.complete_multipart_upload
        answer: Mapping[str, Any] = end(**upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
        return answer
    except BaseException as error:
        if not ending or (isinstance(error, Exception) and classify(error).verdict in _NOT_ENDED):
            _abort(once, upload)
        raise


# The verdicts that prove that an upload did not become an object. Any other verdict proves nothing.
_NOT_ENDED: Final = frozenset(
    {
        Verdict.PRECONDITION,
        Verdict.DENIED,
        Verdict.REFUSED,
        Verdict.NO_CONDITIONS,
        Verdict.NEVER_SENT,
    }
)


def _parts(
    path: Path, client: S3Client, upload: Mapping[str, str], part_bytes: int
) -> list[dict[str, Any]]:
    size_bytes = path.stat().st_size
    part_bytes = max(part_bytes, -(-size_bytes // PARTS_MAX))
    send: Callable[..., Any] = client.upload_part
    parts = []
    for number, start in enumerate(range(0, size_bytes, part_bytes), start=1):
        # This is a window on the file. boto3 reads it in small blocks, so no part is in memory as a whole.
        with ReadFileChunk.from_filename(str(path), start, part_bytes) as body:
            answer = send(**upload, PartNumber=number, Body=body)
        part = {"PartNumber": number, "ETag": answer["ETag"]}
        if f"Checksum{_CHECKSUM}" in answer:
            part[f"Checksum{_CHECKSUM}"] = answer[f"Checksum{_CHECKSUM}"]
        parts.append(part)
    return parts


def _abort(client: S3Client, upload: Mapping[str, str]) -> None:
    """Free the parts of this upload, which nothing else uses. Safe to repeat: if the upload is gone, S3 responds 404."""
    abort: Callable[..., Any] = client.abort_multipart_upload
    try:
        abort(**upload)
    except Exception:  # noqa: BLE001 - the first failure is the one to raise; the bucket's rule deletes the parts
        return
