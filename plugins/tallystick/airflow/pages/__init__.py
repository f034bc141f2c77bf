"""The pages of lakes in the Airflow UI: a small app in the API server, and external views that open it.

`mount` is what the plugin registers. `app` builds the app, `access` decides who reads what, `lakes` keeps open lakes,
`routes` answers, `answers` and `detail` are the JSON forms, `static` has the page itself: HTML, CSS and scripts.
"""
