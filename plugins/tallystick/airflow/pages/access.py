"""Decides which lakes a user may see: those of the DAGs that the user may read in Airflow.

An app of a plugin has no login of its own (Airflow mounts it unprotected), so each route depends on a function of this
module. A DAG belongs to a lake if its commit task updates the lake's Asset; the address of a lake never comes from a
request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qs

import sqlalchemy as sa
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.asset import AssetModel, TaskOutletAssetReference
from fastapi import Depends, HTTPException
from sqlalchemy.orm import Session

from tallystick.airflow.assets import GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class DagLake:
    """The lake of a DAG's pipeline."""

    dag: str
    pipeline: str
    uri: str


def lakes_of_dags(session: Session, dag: str | None = None) -> Mapping[str, DagLake]:
    """Return the lakes by DAG id, of all DAGs or of one. The commit task of such a DAG updates an Asset of tallystick."""
    query = (
        sa.select(TaskOutletAssetReference.dag_id, AssetModel.uri)
        .join(AssetModel, AssetModel.id == TaskOutletAssetReference.asset_id)
        .where(AssetModel.group == GROUP)
        .order_by(TaskOutletAssetReference.dag_id, AssetModel.uri)
    )
    if dag is not None:
        query = query.where(TaskOutletAssetReference.dag_id == dag)
    found: dict[str, DagLake] = {}
    for dag_id, asset_uri in session.execute(query):
        uri, _, words = asset_uri.partition("?")
        pipeline = parse_qs(words).get("pipeline")
        if pipeline:
            found.setdefault(dag_id, DagLake(dag=dag_id, pipeline=pipeline[0], uri=uri))
    return found


def readable_lakes(session: SessionDep, user: GetUserDep) -> Mapping[str, DagLake]:
    """Return the lakes of the DAGs that the user may read. Raises 401 without a login, 403 if there is no such DAG."""
    lakes = lakes_of_dags(session)
    allowed = get_auth_manager().filter_authorized_dag_ids(dag_ids=set(lakes), user=user)
    if not allowed:
        raise HTTPException(403, "no DAG of a lake may be read by this user")
    return {dag: lake for dag, lake in lakes.items() if dag in allowed}


def lake_of(dag_id: str, session: SessionDep) -> DagLake:
    """Return the lake of the DAG in the path; raises 404 if it has none. Use it behind `requires_access_dag`."""
    lake = lakes_of_dags(session, dag_id).get(dag_id)
    if lake is None:
        raise HTTPException(
            404, f"DAG {dag_id} has no lake: no task of it updates an Asset of tallystick"
        )
    return lake


ReadDag = Depends(requires_access_dag(method="GET"))
ReadLake = Annotated[DagLake, Depends(lake_of)]
ReadableLakes = Annotated[Mapping[str, DagLake], Depends(readable_lakes)]
