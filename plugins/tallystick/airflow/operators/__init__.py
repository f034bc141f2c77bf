"""The operators of a run: plan, stage, commit, publish. Each reads its run, calls the core, and logs the result.

They pass only keys by XCom. Everything else is in immutable objects on S3, so that a cleared task finds it there.

    plan    {"interval": [start, end] or null, "version": n, "plans": [{"plan", "sha256", "committed"}]}
    stage   [{"plan", "report"}]
    commit  {"pipeline", "version", "interval", "covered": [[start, end]], "held": [[start, end]],
             "gaps": [[start, end]], "record": key or null, "totals": {class: offsets}, "generation": n or null,
             "committed": {"intervals", "already", "totals", "rows": {table: n}, "bytes"}}

docs/reference/airflow.md describes these values. If a task fails, it pushes {"kind", "message", "hint"} with the key
`error`.
"""
