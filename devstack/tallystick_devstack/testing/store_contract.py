"""Test suites for every store: inherit them and override the `store` fixture, and each test runs against it.

`StoreContract` tests one client at a time. `StoreRaceContract` tests concurrent writes: only a store that checks and
writes in one step passes it. If a store passes only the first suite, it can be used in unit tests, but not for a lake.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from tallystick.errors import InvalidPipeline
from tallystick.store import Applied, ETag, NotApplied, Outcome, Store
from tallystick_devstack.testing.races import create_race, increment, read_counter, start_counter

BIG_BYTES = 8 * 1024 * 1024
ODD_KEYS = (
    "tables/flights/data/a=1/x.parquet",
    ".probe/0",
    "..hidden/...",
    "blank in the middle",
    "plus+and%percent",
    "%2F%2e%2e",
    "quotes'\"and`",
    "question?mark=1&more#hash",
    "semi;colon:comma,at@tilde~star*(paren)",
    "curly{}square[]pipe|caret^back\\slash",
    "umlaut-ä-żółw-東京-🛫",
    "k" * 200 + "/" + "l" * 200,
)
ILLEGAL_KEYS = (
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "a/./b",
    "../a",
    "a\nb",
    "a\x00b",
    "a\x7fb",
    "\ud800",
)


class StoreContract:
    """The tests of the five operations and all of their outcomes, with one client at a time."""

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store; override this fixture."""
        raise NotImplementedError

    def test_what_was_created_is_read_back_with_its_etag(self, store: Store) -> None:
        etag = applied(store.create("a/b.json", b"one"))
        found = store.get("a/b.json")
        assert found is not None
        assert (found.body, found.etag) == (b"one", etag)

    def test_an_absent_object_reads_as_none(self, store: Store) -> None:
        store.create("a/b.json", b"one")
        assert store.get("a/c.json") is None
        assert store.get("a") is None

    def test_creating_over_an_object_answers_exists_and_changes_nothing(self, store: Store) -> None:
        etag = applied(store.create("a", b"one"))
        assert store.create("a", b"two") == NotApplied(because="exists")
        assert store.create("a", b"one") == NotApplied(because="exists")
        assert_holds(store, "a", b"one", etag)

    def test_a_path_is_created_from_the_files_bytes(self, store: Store, tmp_path: Path) -> None:
        file = tmp_path / "part.parquet"
        file.write_bytes(b"PAR1" + bytes(range(256)))
        etag = applied(store.create("a", file))
        assert_holds(store, "a", file.read_bytes(), etag)
        file.write_bytes(b"other")
        assert store.create("a", file) == NotApplied(because="exists")
        assert_holds(store, "a", b"PAR1" + bytes(range(256)), etag)

    def test_a_path_without_a_file_is_an_error_and_creates_nothing(
        self, store: Store, tmp_path: Path
    ) -> None:
        with pytest.raises(FileNotFoundError):
            store.create("a", tmp_path / "absent")
        assert store.get("a") is None

    @pytest.mark.parametrize("size_bytes", [0, 1, BIG_BYTES], ids=["empty", "one byte", "8 MiB"])
    def test_bodies_of_any_size_come_back_whole(
        self, store: Store, tmp_path: Path, size_bytes: int
    ) -> None:
        body = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
        file = tmp_path / "body"
        file.write_bytes(body)
        by_bytes = applied(store.create("bytes", body))
        by_path = applied(store.create("path", file))
        assert_holds(store, "bytes", body, by_bytes)
        assert_holds(store, "path", body, by_path)
        assert [line.size_bytes for line in store.list("")] == [size_bytes, size_bytes]

    def test_replacing_the_version_that_is_there_applies_and_moves_the_etag(
        self, store: Store
    ) -> None:
        first = applied(store.create("root.json", b"one"))
        second = applied(store.replace("root.json", b"two", expected=first))
        assert second != first
        assert_holds(store, "root.json", b"two", second)

    def test_replacing_another_version_answers_changed_and_changes_nothing(
        self, store: Store
    ) -> None:
        first = applied(store.create("root.json", b"one"))
        second = applied(store.replace("root.json", b"two", expected=first))
        assert store.replace("root.json", b"three", expected=first) == NotApplied(because="changed")
        assert_holds(store, "root.json", b"two", second)

    def test_the_etag_of_another_object_does_not_match(self, store: Store) -> None:
        mine = applied(store.create("mine", b"one"))
        other = applied(store.create("other", b"two"))
        assert store.replace("mine", b"three", expected=other) == NotApplied(because="changed")
        assert_holds(store, "mine", b"one", mine)

    def test_an_applied_replace_that_is_sent_again_answers_changed(self, store: Store) -> None:
        """Check the case of a lost response: if a write succeeded and is sent again, the second try returns `changed`."""
        first = applied(store.create("root.json", b"one"))
        second = applied(store.replace("root.json", b"two", expected=first))
        assert store.replace("root.json", b"two", expected=first) == NotApplied(because="changed")
        assert_holds(store, "root.json", b"two", second)

    def test_replacing_what_is_not_there_creates_nothing(self, store: Store) -> None:
        etag = applied(store.create("a", b"one"))
        outcome = store.replace("absent", b"two", expected=etag)
        # S3 returns 404, R2 and Ozone return 412. In both cases nothing landed.
        assert outcome in (NotApplied(because="missing"), NotApplied(because="changed"))
        assert store.get("absent") is None

    def test_a_deleted_object_can_be_created_again_and_not_replaced(self, store: Store) -> None:
        etag = applied(store.create("a", b"one"))
        store.delete(["a"])
        assert store.get("a") is None
        assert isinstance(store.replace("a", b"two", expected=etag), NotApplied)
        assert isinstance(store.create("a", b"three"), Applied)

    def test_an_etag_never_comes_back_while_bodies_are_unique(self, store: Store) -> None:
        """Check that ABA cannot occur: S3 hashes bodies, so equal bytes have one ETag, but each body has a fresh id."""
        seen = [applied(store.create("root.json", b'{"id": 0, "state": "A"}'))]
        for step, state in enumerate("BABA", start=1):
            body = f'{{"id": {step}, "state": "{state}"}}'.encode()
            seen.append(applied(store.replace("root.json", body, expected=seen[-1])))
        assert len(set(seen)) == len(seen)
        for stale in seen[:-1]:
            assert store.replace("root.json", b"late", expected=stale) == NotApplied(
                because="changed"
            )

    def test_deleting_takes_what_is_named_and_does_not_mind_absent_objects(
        self, store: Store
    ) -> None:
        for key in ("a", "b", "c"):
            store.create(key, b"x")
        store.delete(["a", "absent", "c"])
        store.delete([])
        store.delete(iter(["a"]))
        assert [line.key for line in store.list("")] == ["b"]

    def test_a_listing_contains_size_etag_and_time(self, store: Store) -> None:
        etag = applied(store.create("a/b", b"four"))
        (line,) = store.list("a/")
        assert (line.key, line.size_bytes, line.etag) == ("a/b", 4, etag)
        assert line.modified.utcoffset() == timedelta(0)

    def test_a_listing_is_bounded_by_its_prefix(self, store: Store) -> None:
        for key in ("a-", "a/1", "a/b/2", "ab/3", "b/4"):
            applied(store.create(key, b"x"))
        assert [line.key for line in store.list("a/")] == ["a/1", "a/b/2"]
        assert [line.key for line in store.list("a")] == ["a-", "a/1", "a/b/2", "ab/3"]
        assert [line.key for line in store.list("")] == ["a-", "a/1", "a/b/2", "ab/3", "b/4"]
        assert [line.key for line in store.list("c")] == []

    def test_an_object_next_to_a_folder_of_its_name(self, store: Store) -> None:
        """Check keys `a` and `a/1`. A store over a file system cannot have both, and no lake has such keys."""
        applied(store.create("a", b"x"))
        applied(store.create("a/1", b"y"))
        assert [line.key for line in store.list("")] == ["a", "a/1"]

    def test_a_listing_is_in_the_order_of_the_keys_bytes(self, store: Store) -> None:
        # In UTF-16 the last two have the reverse order, because the second begins with a surrogate.
        keys = ["-", "A", "a-", "a/b", "a0", "aa", "ä", "\ufb01", "\U00010348"]
        for key in reversed(keys):
            applied(store.create(key, b"x"))
        assert [line.key for line in store.list("")] == keys

    def test_more_than_a_page_is_listed_and_more_than_a_batch_deleted(self, store: Store) -> None:
        keys = [f"many/{number:05d}" for number in range(1003)]
        with ThreadPoolExecutor(4) as pool:
            outcomes = [*pool.map(lambda key: store.create(key, key.encode()), keys)]
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        store.create("other", b"x")
        assert [line.key for line in store.list("many/")] == keys
        store.delete(keys)
        assert [line.key for line in store.list("")] == ["other"]

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_odd_but_legal_keys_are_kept_as_they_are(self, store: Store, key: str) -> None:
        first = applied(store.create(key, b"one"))
        second = applied(store.replace(key, b"two", expected=first))
        assert_holds(store, key, b"two", second)
        assert [line.key for line in store.list("")] == [key]
        assert [line.key for line in store.list(key[:-1])] == [key]
        store.delete([key])
        assert store.get(key) is None

    @pytest.mark.parametrize("key", ILLEGAL_KEYS, ids=ascii)
    def test_keys_that_clients_read_differently_are_refused(self, store: Store, key: str) -> None:
        for call in (
            lambda: store.get(key),
            lambda: store.create(key, b"x"),
            lambda: store.replace(key, b"x", expected=ETag('"0"')),
            lambda: store.delete([key]),
        ):
            with pytest.raises(InvalidPipeline, match=r"object key .* is not allowed"):
                call()

    @pytest.mark.parametrize("prefix", ["/", "a//", "../", "a/../", "a\n", "\ud800"], ids=ascii)
    def test_prefixes_that_no_key_has_are_refused(self, store: Store, prefix: str) -> None:
        with pytest.raises(InvalidPipeline, match="is not allowed"):
            [*store.list(prefix)]


class StoreRaceContract:
    """The tests of concurrent clients: of the conditional writes to one version, exactly one is applied."""

    creators: ClassVar[int] = 16
    created: ClassVar[int] = 25
    incrementers: ClassVar[int] = 8
    increments: ClassVar[int] = 25

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store that several threads can use; override this fixture."""
        raise NotImplementedError

    def test_a_create_race_has_one_winner_and_the_winners_bytes(self, store: Store) -> None:
        for number in range(self.created):
            outcomes = create_race(store, f"slot/{number}", writers=self.creators)
            winners = [
                writer for writer, outcome in enumerate(outcomes) if isinstance(outcome, Applied)
            ]
            assert len(winners) == 1, (
                f"slot {number}: {len(winners)} of {self.creators} creates were applied"
            )
            found = store.get(f"slot/{number}")
            assert found is not None
            assert found.body == f"writer {winners[0]}".encode()

    def test_no_acknowledged_increment_is_lost(self, store: Store) -> None:
        start_counter(store, "counter")
        writers = [f"w{number}" for number in range(self.incrementers)]
        with ThreadPoolExecutor(self.incrementers) as pool:
            done = [
                *pool.map(
                    lambda writer: increment(
                        store, "counter", writer=writer, times=self.increments
                    ),
                    writers,
                )
            ]
        assert read_counter(store, "counter") == {tally.writer: tally.acked for tally in done}
        assert sum(tally.acked for tally in done) == self.incrementers * self.increments

    def test_what_was_acknowledged_is_listed_at_once(self, store: Store) -> None:
        def create_and_list(number: int) -> bool:
            applied(store.create(f"fresh/{number:04d}", b"x"))
            return f"fresh/{number:04d}" in [line.key for line in store.list("fresh/")]

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(create_and_list, range(40)))


def applied(outcome: Outcome) -> ETag:
    """Check that a write was applied, and return its ETag."""
    assert isinstance(outcome, Applied), outcome
    return outcome.etag


def assert_holds(store: Store, key: str, body: bytes, etag: ETag) -> None:
    """Check that the object exists with this body and this ETag."""
    found = store.get(key)
    assert found is not None
    assert found.body == body  # first, because a wrong body is more informative than a wrong ETag
    assert found.etag == etag
