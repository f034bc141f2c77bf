"""`tally local ui`: where the pages of the stack's Airflow are, and how to log in."""

from __future__ import annotations

from pathlib import Path

import typer

from tallystick.cli.errors import exit_on_error, note, out, out_json
from tallystick.errors import SettingsError
from tallystick_devstack.which_stack import StateDir, choose, running_stack


@exit_on_error
def ui(
    show_password: bool = typer.Option(
        False,
        "--show-password",
        help="Print the password, too. It opens every page of this Airflow.",
    ),
    open_browser: bool = typer.Option(
        False, "--open", help="Open the pages in the default browser."
    ),
    state_dir: Path | None = StateDir,
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Print the address of Airflow's pages, the user, and where the password is."""
    chosen = choose(state_dir)
    info = running_stack(chosen, "airflow")
    url, user, password = info.airflow_url, info.airflow_user, info.airflow_password
    place = chosen.folder / "stack.json"
    if as_json:
        form = {
            "state_dir": str(chosen.folder),
            "airflow_url": url,
            "airflow_user": user,
            "password_file": str(place),
        }
        out_json(form | ({"airflow_password": password} if show_password else {}))
    else:
        out(f"Airflow:  {url}")
        out(f"user:     {user}")
        out(f"password: {password if show_password else f'airflow_password in {place}'}")
        if not show_password:
            note("--show-password prints the password.")
    if open_browser:
        _open(str(url))


def _open(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        raise SettingsError(
            f"{url}: expected a browser that opens it, found none on this machine.",
            hint="open the address by hand.",
        )
