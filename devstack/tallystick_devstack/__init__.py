"""The embedded stack: Kafka, S3, PostgreSQL and Airflow on this machine, loopback only, and the demo on top."""
