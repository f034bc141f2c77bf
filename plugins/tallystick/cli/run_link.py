"""The page of a run in Airflow, if the address of Airflow is known."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from tallystick.errors import without_user_info
from tallystick.format.interval import Request

URL_ENVS = ("TALLYSTICK_AIRFLOW_URL", "AIRFLOW__API__BASE_URL")


def run_url(request: Request, environ: Mapping[str, str]) -> str | None:
    """Return the address of the run's page in Airflow; None if no variable of URL_ENVS has an http(s) address."""
    base = next((environ[name] for name in URL_ENVS if environ.get(name)), "")
    if not base.startswith(("http://", "https://")):
        return None
    page = (
        f"{base.rstrip('/')}/dags/{quote(request.dag, safe='')}/runs/{quote(request.run, safe='')}"
    )
    return without_user_info(page)
