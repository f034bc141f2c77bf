"""The version of this library. Plans, reports and commit records contain it."""

VERSION = "0.1.0"
