"""Reading a schema registry: the port, the client of Confluent's API, and schemas with all that they refer to."""
