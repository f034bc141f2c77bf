"""A large file goes to S3 in parts: they become one object together, or nothing is there under the key.

boto3's own `upload_file` cannot be asked: it takes no If-None-Match and does not tell the ETag of what it made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from s3transfer.utils import ReadFileChunk

from tallystick.store.answers import Verdict, judge

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PARTS_MAX: Final = 10_000  # S3 User Guide, "Amazon S3 multipart upload limits"
_CHECKSUM: Final = (
    "CRC32"  # boto3's own choice; every part must say the one that the upload began with
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
    """Upload a file in parts where no object is; return S3's answer to CompleteMultipartUpload, raise what boto3 raises.

    `place` names bucket and key, and goes with each request; `written` goes with the object. Parts are streamed from the
    file by `patient`, which tries again: the same part with the same bytes replaces itself. The requests that begin and
    end the upload go through `once`, each in one attempt. An upload that provably did not end is aborted; after a lost
    reply to its end nothing is touched, and what it may have left goes with the bucket's rule for incomplete uploads.
    Safe to repeat: each call is an upload of its own, and `If-None-Match: *` lets one of them make the object.
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
        if not ending or (isinstance(error, Exception) and judge(error).verdict in _NOT_ENDED):
            _abort(once, upload)
        raise


# What proves that an upload did not become an object. Another answer to its end, or none, proves nothing.
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
        # A window on the file: boto3 reads it in small pieces, so no part is ever in memory.
        with ReadFileChunk.from_filename(str(path), start, part_bytes) as body:
            answer = send(**upload, PartNumber=number, Body=body)
        part = {"PartNumber": number, "ETag": answer["ETag"]}
        if f"Checksum{_CHECKSUM}" in answer:
            part[f"Checksum{_CHECKSUM}"] = answer[f"Checksum{_CHECKSUM}"]
        parts.append(part)
    return parts


def _abort(client: S3Client, upload: Mapping[str, str]) -> None:
    """Free the parts of our own upload, which nobody sees. Safe to repeat: S3 answers 404 for one that is gone."""
    abort: Callable[..., Any] = client.abort_multipart_upload
    try:
        abort(**upload)
    except Exception:  # noqa: BLE001 - the failure that led here is the one to tell; the bucket's rule collects the rest
        return
