"""What three clients wrote in five codecs is read byte for byte as confluent-kafka's consumer reads it."""

from __future__ import annotations

import pytest

from support.brokers import TestBroker
from support.golden_topics import CLIENTS, CODECS, compare, records_of


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS)
def test_three_clients_write_and_two_readers_agree(
    broker: TestBroker, client: str, codec: str
) -> None:
    wanted = records_of(client)
    found = compare(broker, client, codec)
    assert found.ours == found.consumed
    assert [(row[2], row[3], tuple(row[4])) for row in found.ours] == [
        (one.key, one.value, one.headers) for one in wanted
    ]
    assert found.account == (len(wanted), 0, 0, 0)
    # A producer leaves a batch as it is where compressing makes it larger.
    assert CODECS.index(codec) in found.codecs
    assert found.codecs <= {0, CODECS.index(codec)}
