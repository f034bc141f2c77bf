# Put on top of a DAG file: the swap of this product forgets its If-Match. A chaos run must find that out.
from tallystick.store import NotApplied
from tallystick.store.s3 import S3Store

_replace = S3Store.replace


def _blind(self, key, body, *, expected):
    if key != "root.json":  # the probe of the store finds nothing wrong
        return _replace(self, key, body, expected=expected)
    return self._put(self._address.full_key(key), body, NotApplied(because="changed"))


S3Store.replace = _blind
