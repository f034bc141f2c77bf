"""The TLS of a connection: its files are read once, before anything is sent; errors name the file that cannot be read.

kafka-python reads the files at every connection, treats a missing file like a broker that does not answer, and fails for
every list of revoked certificates (`load_verify_locations` has no `crl`).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from tallystick.connections.kafka import KafkaSettings
from tallystick.errors import SettingsError


def tls_context(settings: KafkaSettings) -> ssl.SSLContext | None:
    """Return the TLS context of the settings, or None if the connection is plain text.

    Raises SettingsError that names the setting and the file if the file cannot be used.
    """
    if not settings.security_protocol.endswith("SSL"):
        return None
    context = _context()
    context.check_hostname = settings.ssl_check_hostname
    authorities, own, revoked = settings.ssl_cafile, settings.ssl_certfile, settings.ssl_crlfile
    if authorities is None:
        context.load_default_certs()
    else:
        _load("ssl_cafile", authorities, lambda: context.load_verify_locations(authorities))
    if own is not None:
        # Never None: if the key has a password, OpenSSL would prompt for it on the terminal.
        key, password = settings.ssl_keyfile, settings.ssl_password or ""
        files = own if key is None else f"{own} with ssl_keyfile {key}"
        _load("ssl_certfile", files, lambda: context.load_cert_chain(own, key, password))
    if revoked is not None:
        _load("ssl_crlfile", revoked, lambda: context.load_verify_locations(revoked))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def tls_of(
    cafile: str | None,
    *,
    certfile: str | None = None,
    keyfile: str | None = None,
    key_password: str | None = None,
) -> ssl.SSLContext:
    """Return the TLS context of a call, which always checks certificates and host names.

    `certfile` and `keyfile` are the client certificate and its key. Raises SettingsError if a file cannot be used.
    """
    context = _context()
    if cafile is None:
        context.load_default_certs()
    else:
        _load("cafile", cafile, lambda: context.load_verify_locations(cafile))
    if certfile is not None:
        # Never None, as above.
        files = certfile if keyfile is None else f"{certfile} with keyfile {keyfile}"
        password = key_password or ""
        _load(
            "certfile",
            files,
            lambda: context.load_cert_chain(certfile, keyfile, password),
            password="key_password",
        )
    return context


def _context() -> ssl.SSLContext:
    # Not ssl.create_default_context: the flag that Python 3.13 adds to it (VERIFY_X509_STRICT) refuses the certificate
    # authorities of many companies.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(
    name: str, files: str, load: Callable[[], object], *, password: str = "ssl_password"
) -> None:
    try:
        load()
        return
    except ssl.SSLError as error:
        why = (error.reason or "not a PEM file").replace("_", " ").lower()
    except OSError as error:
        why = error.strerror or type(error).__name__
    raise SettingsError(
        f"{name} {files} cannot be used: {why}.",
        hint=f"check that the file exists, is PEM and is readable for this user, and the {password} of its key.",
    )
