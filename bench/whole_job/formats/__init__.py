"""The whole job on other records than clicks: nested JSON documents, real flights, and Avro with a schema registry."""
