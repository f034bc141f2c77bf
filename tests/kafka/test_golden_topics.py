"""Records of three clients in five codecs are read byte for byte as confluent-kafka's consumer reads them."""

from __future__ import annotations

import pytest

from support.brokers import TestBroker
from support.golden_topics import CLIENTS, CODECS, compare, records_of


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS)
def test_three_clients_write_and_two_readers_agree(
    broker: TestBroker, client: str, codec: str
) -> None:
    expected = records_of(client)
    found = compare(broker, client, codec)
    assert found.ours == found.consumed
    assert [(row[2], row[3], tuple(row[4])) for row in found.ours] == [
        (record.key, record.value, record.headers) for record in expected
    ]
    assert found.account == (len(expected), 0, 0, 0)
    # A producer does not compress a batch if that makes it larger.
    assert CODECS.index(codec) in found.codecs
    assert found.codecs <= {0, CODECS.index(codec)}
