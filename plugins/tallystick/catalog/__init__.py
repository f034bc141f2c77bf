"""A read-only Iceberg REST catalog over lakes, `tally catalog`: each lake is a namespace, each session reads one version.

versions   the texts that select versions: the warehouse of a session, and the prefix of its requests
errors     Iceberg's form of an error, and the error of each error of tallystick
lakes      reads a lake: its newest version, older ones, and the metadata of tables
cache      a cache with a bound
results    the answers about tables, kept in memory
sessions   what a warehouse and a prefix select of the lakes that the caller may see
tokens     bearer tokens and the lakes that each may see
access     the checks before each request: host, token; and its line in the log
routes     the routes of the specification that only read
app        puts the routes and the checks together
server     the HTTP server, with TLS

The server keeps nothing between requests but caches, so that any number of them may run for the same lakes.
"""
