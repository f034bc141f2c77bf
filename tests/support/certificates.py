"""Certificates for the loopback interface, created by the tests that use them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID


def self_signed(path: Path, *, password: str | None = None) -> Path:
    """Write a key (encrypted if `password` is given) and its self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(loopback, critical=False)
        .sign(key, SHA256())
    )
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    path.touch(mode=0o600)
    path.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    return path


def revocation_of(certificate: Path, path: Path) -> Path:
    """Write the revocation list that revokes a self-signed certificate."""
    both = certificate.read_bytes()
    key, issued = load_pem_private_key(both, password=None), x509.load_pem_x509_certificate(both)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = datetime.now(UTC)
    since = now - timedelta(hours=1)
    revoked = (
        x509.RevokedCertificateBuilder()
        .serial_number(issued.serial_number)
        .revocation_date(since)
        .build()
    )
    listed = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issued.subject)
        .last_update(since)
        .next_update(now + timedelta(days=1))
        .add_revoked_certificate(revoked)
        .sign(key, SHA256())
    )
    path.write_bytes(listed.public_bytes(Encoding.PEM))
    return path
