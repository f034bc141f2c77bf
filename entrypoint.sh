#!/bin/bash
# Kubernetes starts a Spark executor with the argument `executor` alone; Spark passes the rest in the environment. The
# entrypoint of Spark's own images handles that argument, Airflow's does not; every other argument is for Airflow's.
set -eu
[[ "${1:-}" == executor ]] || exec /entrypoint "$@"

SPARK_HOME=$(find_spark_home.py)
export SPARK_HOME
mapfile -d '' -t options < <(env -0 | grep -z '^SPARK_JAVA_OPT_' | sort -z -t_ -k4n | cut -z -d= -f2-)
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
