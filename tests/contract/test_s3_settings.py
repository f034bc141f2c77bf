"""What TALLYSTICK_S3_* say reaches S3 with every request that it is about, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.errors import SettingsError
from tallystick.store import Applied
from tallystick.store.open import open_store
from tallystick.store.s3 import S3Settings, S3Store

OWNER = "x-amz-expected-bucket-owner"
ENCRYPTION = "x-amz-server-side-encryption"
KMS_KEY = "x-amz-server-side-encryption-aws-kms-key-id"
ACCOUNT = "123456789012"


def headers_of(uri: str) -> dict[str, dict[str, str]]:
    """The headers of one request of each kind, lower case."""
    store = open_store(uri)
    assert isinstance(store, S3Store)
    seen: dict[str, dict[str, str]] = {}

    def note(request: Any, event_name: str, **_: Any) -> None:
        told = {name.lower(): _text(value) for name, value in request.headers.items()}
        seen[event_name.rsplit(".", 1)[-1]] = told

    for client in (store._writer, store._reader):
        client.meta.events.register("before-send.s3", note)
    made = store.create("a", b"one")
    assert isinstance(made, Applied), made
    assert isinstance(store.replace("a", b"two", expected=made.etag), Applied)
    assert store.get("a") is not None
    assert len([*store.list("")]) == 1
    store.delete(["a"])
    return seen


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@pytest.mark.usefixtures("on_ministack")
def test_without_settings_nothing_is_said(lake_uri: str) -> None:
    seen = headers_of(lake_uri)
    assert set(seen) == {"PutObject", "GetObject", "ListObjectsV2", "DeleteObjects"}
    for headers in seen.values():
        assert not {OWNER, ENCRYPTION, KMS_KEY} & headers.keys()
    assert not [name for name in seen["PutObject"] if "checksum" in name or name == "x-amz-trailer"]


@pytest.mark.usefixtures("on_ministack")
def test_the_owner_goes_with_every_request_and_the_encryption_with_writes(
    lake_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_S3_BUCKET_OWNER", ACCOUNT)
    monkeypatch.setenv("TALLYSTICK_S3_ENCRYPTION", "AES256")
    seen = headers_of(lake_uri)
    assert {headers.get(OWNER) for headers in seen.values()} == {ACCOUNT}
    assert {name for name, headers in seen.items() if ENCRYPTION in headers} == {"PutObject"}
    assert seen["PutObject"][ENCRYPTION] == "AES256"


@pytest.mark.usefixtures("on_ministack")
def test_a_key_of_kms_goes_with_its_encryption(
    lake_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_S3_ENCRYPTION", "aws:kms")
    monkeypatch.setenv("TALLYSTICK_S3_KMS_KEY_ID", "alias/lake")
    sent = headers_of(lake_uri)["PutObject"]
    assert (sent[ENCRYPTION], sent[KMS_KEY]) == ("aws:kms", "alias/lake")


@pytest.mark.usefixtures("on_ministack")
def test_checksums_are_boto3s_where_they_are_wanted(
    lake_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYSTICK_S3_CHECKSUMS", "on")
    sent = headers_of(lake_uri)["PutObject"]
    assert [name for name in sent if "checksum" in name or name == "x-amz-trailer"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"BUCKET_OWNER": "me"}, "TALLYSTICK_S3_BUCKET_OWNER is no AWS account id.*12 digits"),
        ({"ENCRYPTION": "aes"}, "TALLYSTICK_S3_ENCRYPTION is 'aes'.*AES256, aws:kms"),
        ({"KMS_KEY_ID": "k"}, "TALLYSTICK_S3_KMS_KEY_ID is set without"),
        ({"KMS_KEY_ID": "k", "ENCRYPTION": "AES256"}, "TALLYSTICK_S3_KMS_KEY_ID is set without"),
        ({"CHECKSUMS": "yes"}, "TALLYSTICK_S3_CHECKSUMS is 'yes'.*on or off"),
        ({"BUCKET_OWNR": ACCOUNT}, "TALLYSTICK_S3_BUCKET_OWNR is not a setting"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(words: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        S3Settings.from_environ({f"TALLYSTICK_S3_{name}": value for name, value in words.items()})


def test_an_empty_variable_is_none() -> None:
    assert S3Settings.from_environ({"TALLYSTICK_S3_ENCRYPTION": ""}) == S3Settings()
