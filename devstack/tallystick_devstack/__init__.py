"""The embedded stack: Kafka, S3, PostgreSQL, Airflow and Spark on this machine, on the loopback interface only."""
