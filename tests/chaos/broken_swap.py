# Lines for the top of a DAG file: they remove If-Match from the product's swap. A chaos run must detect that.
from tallystick.store import NotApplied
from tallystick.store.s3 import S3Store

_replace = S3Store.replace


def _blind(self, key, body, *, expected):
    if key != "root.json":  # the store's probe must pass
        return _replace(self, key, body, expected=expected)
    return self._put(self._address.full_key(key), body, NotApplied(because="changed"))


S3Store.replace = _blind
