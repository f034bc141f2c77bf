"""The settings TALLYSTICK_S3_* are sent to S3 with the requests that they are for, and with no others."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

from tallystick.errors import SettingsError
from tallystick.store import Applied, s3
from tallystick.store.open import open_store
from tallystick.store.s3 import S3Settings, S3Store

OWNER = "x-amz-expected-bucket-owner"
ENCRYPTION = "x-amz-server-side-encryption"
KMS_KEY = "x-amz-server-side-encryption-aws-kms-key-id"
ACCOUNT = "123456789012"


def headers_of(uri: str) -> dict[str, dict[str, str]]:
    """Return the headers of one request of each kind, with lower-case names."""
    store = open_store(uri)
    assert isinstance(store, S3Store)
    sent_headers: dict[str, dict[str, str]] = {}

    def note(request: Any, event_name: str, **_: Any) -> None:
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        sent_headers[event_name.rsplit(".", 1)[-1]] = headers

    for client in (store._writer, store._reader):
        client.meta.events.register("before-send.s3", note)
    created = store.create("a", b"one")
    assert isinstance(created, Applied), created
    assert isinstance(store.replace("a", b"two", expected=created.etag), Applied)
    assert store.get("a") is not None
    assert len([*store.list("")]) == 1
    store.delete(["a"])
    return sent_headers


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@pytest.mark.usefixtures("on_ministack")
def test_without_settings_no_header_is_sent(lake_uri: str) -> None:
    sent_headers = headers_of(lake_uri)
    assert set(sent_headers) == {"PutObject", "GetObject", "ListObjectsV2", "DeleteObjects"}
    for headers in sent_headers.values():
        assert not {OWNER, ENCRYPTION, KMS_KEY} & headers.keys()
    assert not [
        name for name in sent_headers["PutObject"] if "checksum" in name or name == "x-amz-trailer"
    ]


@pytest.mark.usefixtures("on_ministack")
def test_the_owner_is_sent_with_every_request_and_the_encryption_with_writes(
    lake_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_S3_BUCKET_OWNER", ACCOUNT)
    monkeypatch.setenv("TALLYSTICK_S3_ENCRYPTION", "AES256")
    sent_headers = headers_of(lake_uri)
    assert {headers.get(OWNER) for headers in sent_headers.values()} == {ACCOUNT}
    assert {name for name, headers in sent_headers.items() if ENCRYPTION in headers} == {
        "PutObject"
    }
    assert sent_headers["PutObject"][ENCRYPTION] == "AES256"


@pytest.mark.usefixtures("on_ministack")
def test_a_kms_key_is_sent_with_its_encryption(
    lake_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_S3_ENCRYPTION", "aws:kms")
    monkeypatch.setenv("TALLYSTICK_S3_KMS_KEY_ID", "alias/lake")
    sent = headers_of(lake_uri)["PutObject"]
    assert (sent[ENCRYPTION], sent[KMS_KEY]) == ("aws:kms", "alias/lake")


@pytest.mark.usefixtures("on_ministack")
def test_checksums_that_are_switched_on_are_those_of_boto3(
    lake_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_S3_CHECKSUMS", "on")
    sent = headers_of(lake_uri)["PutObject"]
    assert [name for name in sent if "checksum" in name or name == "x-amz-trailer"]


@pytest.mark.usefixtures("on_ministack")
def test_each_store_of_a_process_signs_with_the_credentials_of_when_it_was_opened(
    lake_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key_id in ("first", "second"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key_id)
        sent = headers_of(lake_uri)["PutObject"]
        assert f"Credential={key_id}/" in sent["authorization"]


def test_a_further_store_reads_no_model_of_s3_again_and_adds_nothing_to_the_shared_loader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    S3Store("s3://bucket/lake")
    read: list[str] = []
    load_file = JSONFileLoader.load_file

    def note(loader: JSONFileLoader, path: str) -> Any:
        read.append(path)
        return load_file(loader, path)

    monkeypatch.setattr(JSONFileLoader, "load_file", note)
    shared = s3._models(None)
    folders = list(shared.search_paths)
    S3Store("s3://bucket/lake")
    assert read == []
    assert shared.search_paths == folders


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"BUCKET_OWNER": "me"},
            "TALLYSTICK_S3_BUCKET_OWNER: expected an AWS account id of 12 digits, found 'me'",
        ),
        (
            {"ENCRYPTION": "aes"},
            "TALLYSTICK_S3_ENCRYPTION: expected .*AES256, aws:kms.*, found 'aes'",
        ),
        (
            {"KMS_KEY_ID": "k"},
            "S3_KMS_KEY_ID: expected .*_ENCRYPTION=aws:kms with it, found nothing",
        ),
        ({"KMS_KEY_ID": "k", "ENCRYPTION": "AES256"}, "S3_KMS_KEY_ID: expected .* found AES256"),
        ({"CHECKSUMS": "yes"}, "TALLYSTICK_S3_CHECKSUMS: expected 'on' or 'off', found 'yes'"),
        ({"BUCKET_OWNR": ACCOUNT}, "S3_BUCKET_OWNR: expected one of .*TALLYSTICK_S3_BUCKET_OWNER"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        S3Settings.from_environ({f"TALLYSTICK_S3_{name}": value for name, value in environ.items()})


def test_an_empty_variable_is_ignored() -> None:
    assert S3Settings.from_environ({"TALLYSTICK_S3_ENCRYPTION": ""}) == S3Settings()
