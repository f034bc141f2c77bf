"""The whole embedded stack: healthy, private, repeatable, and without remains after it is stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import boto3
import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tallystick.errors import SettingsError
from tallystick_devstack.info import LAKE_BUCKET, StackInfo, read_stack
from tallystick_devstack.process import wait_until
from tallystick_devstack.stack import down, status, up

DONE_S = 180
# Longer than five requests of five seconds each with the pauses between them: Airflow's own limits.
SILENT_S = 45
GONE_S = 30
DAG_ID = "escape"
# The task leaves a process in its own session, like a lost Spark driver.
SOURCE = """
import os, subprocess
from airflow.sdk import DAG, task

with DAG("escape", schedule=None):
    @task(task_id="leave")
    def leave():
        orphan = subprocess.Popen(["sleep", "3600"], start_new_session=True)
        names = ("AWS_ENDPOINT_URL_S3", "TALLYSTICK_KAFKA_DEFAULT", "SPARK_LOCAL_IP")
        return {"orphan": orphan.pid, **{name: os.environ[name] for name in names}}
    leave()
"""
FAILING_ID = "fails"
FAILING = """
from airflow.sdk import DAG, task

with DAG("fails", schedule=None):
    @task(task_id="count", retries=0)
    def count():
        print("counting rows")
        raise ValueError("no rows")
    count()
"""
WAITING_ID = "waits"
# It ends when the test has created the file, and is not retried.
WAITING = """
import time
from pathlib import Path
from airflow.sdk import DAG, task

with DAG("waits", schedule=None):
    @task(task_id="wait", retries=0)
    def wait():
        while not (Path(__file__).parents[1] / "go").exists():
            time.sleep(0.2)
    wait()
"""
TALLY = [sys.executable, "-c", "from tallystick.cli import main; main()"]


def make_project(folder: Path) -> Path:
    """Create an empty project and return its state folder."""
    for name in ("dags", "plugins"):
        (folder / name).mkdir(exist_ok=True)
    return folder / ".tally"


@dataclass
class Stack:
    """A project with a stack that runs at the start of each test."""

    project_dir: Path
    state_dir: Path

    def up(self) -> StackInfo:
        """Return the running stack; start it if a test has stopped it."""
        info = status(self.state_dir)
        return (
            info
            if info is not None and info.running
            else up(self.state_dir, project_dir=self.project_dir, bound=True)
        )

    def processes(self) -> list[psutil.Process]:
        """Return the supervisor and all processes below it."""
        supervisor = psutil.Process(self.up().supervisor_pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def run_escape(self, *, api_server_silent_s: float = 0) -> dict[str, object]:
        """Unpause and trigger the DAG, and return the XCom of its task."""
        airflow = self.up().airflow()
        airflow.wait_for_dag(DAG_ID, deadline_s=DONE_S)
        airflow.set_paused(DAG_ID, paused=False)
        run_id = airflow.trigger(DAG_ID)["dag_run_id"]
        if api_server_silent_s:
            self.silence_the_api_server(api_server_silent_s)
        state = airflow.wait_for_run(DAG_ID, run_id, deadline_s=DONE_S)["state"]
        assert state == "success", local(self, "logs", DAG_ID, run_id).stdout
        xcom = airflow.xcom(DAG_ID, run_id, "leave")
        assert isinstance(xcom, dict)
        return xcom

    def silence_the_api_server(self, silent_s: float) -> None:
        """Stop all processes of the api-server for a while: it accepts connections, and answers nothing."""
        servers = [one for one in self.processes() if "api_server" in name_of(one)]
        assert servers
        for server in servers:
            server.suspend()
        time.sleep(silent_s)  # the length of the outage
        for server in servers:
            server.resume()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    project_dir = tmp_path_factory.mktemp("stack")
    running = Stack(project_dir, make_project(project_dir))
    (project_dir / "dags" / "escape.py").write_text(SOURCE)
    (project_dir / "dags" / "fails.py").write_text(FAILING)
    (project_dir / "dags" / "waits.py").write_text(WAITING)
    running.up()
    yield running
    down(running.state_dir)


def alive(process: psutil.Process) -> bool:
    """Return True if a process runs; a zombie has ended and only waits for process 1."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def name_of(process: psutil.Process) -> str:
    """Return the name of a process; empty if it has ended since it was listed."""
    with suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def wait_until_gone(processes: list[psutil.Process]) -> None:
    wait_until(
        lambda: not any(map(alive, processes)),
        deadline_s=GONE_S,
        what=f"the end of {[process.pid for process in processes if alive(process)]}",
    )


def s3(info: StackInfo) -> object:
    environment = info.environment()
    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL_S3"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_REGION"],
    )


def test_every_part_answers(stack: Stack) -> None:
    info = stack.up()
    assert {name: part.state for name, part in info.parts.items()} == dict.fromkeys(
        ("kafka", "s3", "postgres", "airflow"), "running"
    )
    kafka = AdminClient(info.kafka_client())
    assert len(kafka.list_topics(timeout=20).brokers) == 1
    s3(info).head_bucket(Bucket=LAKE_BUCKET)  # type: ignore[attr-defined]
    address = info.parts["s3"].address
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{address}/{LAKE_BUCKET}?list-type=2")
    health = info.airflow().health()
    assert {health[part]["status"] for part in ("metadatabase", "scheduler", "dag_processor")} == {
        "healthy"
    }


def test_everything_listens_on_the_loopback_interface_only(stack: Stack) -> None:
    listening = []
    for process in stack.processes():
        with suppress(psutil.NoSuchProcess):
            listening += [
                (connection.laddr.ip, connection.laddr.port, name_of(process))
                for connection in process.net_connections(kind="inet")
                if connection.status == psutil.CONN_LISTEN
            ]
    ports = {part.port for part in stack.up().parts.values() if part.port is not None}
    assert ports <= {port for _, port, _ in listening}
    assert {ip for ip, _, _ in listening} <= {"127.0.0.1", "::ffff:127.0.0.1"}, listening


def test_files_with_secrets_are_readable_by_their_owner_only(stack: Stack) -> None:
    stack.up()
    assert stat.S_IMODE(stack.state_dir.stat().st_mode) == 0o700
    for name in (
        "stack.json",
        "secrets.json",
        "kafka/broker.properties",
        "airflow/secrets.json",
        "airflow/passwords.json",
    ):
        assert stat.S_IMODE((stack.state_dir / name).stat().st_mode) == 0o600, name
    airflow_cfg = stack.state_dir / "airflow" / "airflow.cfg"
    assert stack.up().airflow_password not in airflow_cfg.read_text()


def test_no_password_is_in_an_argument_or_outside_the_secret_files(stack: Stack) -> None:
    stack.up()
    logins = json.loads((stack.state_dir / "secrets.json").read_text())
    assert set(logins) == {"s3_secret_key", "kafka_password", "kafka_broker_password"}
    assert sum(len(password) >= 32 for password in logins.values()) == len(logins)
    seen = []
    for process in stack.processes():
        with suppress(psutil.NoSuchProcess):
            words = " ".join(process.cmdline())
            seen += [name for name, password in logins.items() if password in words]
    secret_files = {"secrets.json", "stack.json", "broker.properties"}
    for path in stack.state_dir.rglob("*"):
        if path.name not in secret_files and path.is_file():
            body = path.read_bytes()
            seen += [str(path) for password in logins.values() if password.encode() in body]
    assert seen == []


def listens(info: StackInfo, name: str) -> set[int]:
    """Return every port on which a part listens."""
    ports = set()
    for pid in info.parts[name].pids:
        for process in psutil.Process(pid).children(recursive=True):
            ports |= {
                connection.laddr.port
                for connection in process.net_connections(kind="inet")
                if connection.status == psutil.CONN_LISTEN
            }
    return ports


def test_kafka_refuses_a_client_without_the_password_at_every_listener(stack: Stack) -> None:
    info = stack.up()
    login = info.kafka_client()
    AdminClient(login).list_topics(timeout=20)
    ports = listens(info, "kafka")
    assert info.parts["kafka"].port in ports
    assert len(ports) == 2  # clients', and the controller's
    for port in ports:
        for words in ({}, {**login, "sasl.password": "tallystick"}):
            place = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": "0"}
            with pytest.raises(KafkaException):
                AdminClient({**words, **place}).list_topics(timeout=3)
    # The password of clients is refused by the controller.
    controller = next(port for port in ports if port != info.parts["kafka"].port)
    with pytest.raises(KafkaException):
        AdminClient(
            {**login, "bootstrap.servers": f"127.0.0.1:{controller}", "log_level": "0"}
        ).list_topics(timeout=3)


def test_a_second_stack_in_the_same_folder_is_refused(stack: Stack) -> None:
    info = stack.up()
    with pytest.raises(
        SettingsError, match=f"another stack runs in .* .process {info.supervisor_pid}"
    ):
        up(stack.state_dir, project_dir=stack.project_dir)
    assert status(stack.state_dir) == info


def test_tasks_find_the_parts_in_their_environment(stack: Stack) -> None:
    info = stack.up()
    found = stack.run_escape()
    expected = info.environment()
    assert found["AWS_ENDPOINT_URL_S3"] == expected["AWS_ENDPOINT_URL_S3"]
    assert found["TALLYSTICK_KAFKA_DEFAULT"] == expected["TALLYSTICK_KAFKA_DEFAULT"]
    assert found["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_task_starts_when_the_api_server_has_answered_nothing_for_a_while(stack: Stack) -> None:
    assert stack.run_escape(api_server_silent_s=SILENT_S)["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_task_goes_on_when_the_api_server_answers_no_heartbeat_for_a_while(stack: Stack) -> None:
    airflow = stack.up().airflow()
    airflow.wait_for_dag(WAITING_ID, deadline_s=DONE_S)
    airflow.set_paused(WAITING_ID, paused=False)
    run_id = airflow.trigger(WAITING_ID)["dag_run_id"]
    airflow.wait_for_task(WAITING_ID, run_id, "wait", states={"running"}, deadline_s=DONE_S)
    stack.silence_the_api_server(SILENT_S)
    (stack.project_dir / "go").touch()
    state = airflow.wait_for_run(WAITING_ID, run_id, deadline_s=DONE_S)["state"]
    assert state == "success", local(stack, "logs", WAITING_ID, run_id).stdout


def shell(stack: Stack, script: str, *arguments: str) -> str:
    """Run a script in a shell with the variables of `tally local env`, as a user does; return its standard output.

    `$0` are the lines of `tally local env`. The shell's folder has no stack.
    """
    stack.up()
    exports = subprocess.run(
        [*TALLY, "local", "env", "--state-dir", str(stack.state_dir)],
        env={**os.environ, "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # Like a user's shell: it knows nothing of the stack but these variables.
    return subprocess.run(
        ["sh", "-c", f'eval "$0"; {script}', exports, *arguments],
        env={"PATH": os.defpath, "HOME": str(stack.project_dir)},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def local(stack: Stack, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of `tally local` on the stack."""
    stack.up()
    return subprocess.run(
        [*TALLY, "local", *words, "--state-dir", str(stack.state_dir)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_shell_with_the_environment_of_tally_local_env_reaches_airflow_and_s3(
    stack: Stack,
) -> None:
    stack.up().airflow().wait_for_dag(DAG_ID, deadline_s=DONE_S)
    list_buckets = (
        "import boto3; print([b['Name'] for b in boto3.client('s3').list_buckets()['Buckets']])"
    )
    output = shell(stack, 'airflow dags list -o plain; python -c "$1"', list_buckets)
    assert DAG_ID in output
    assert f"['{LAKE_BUCKET}']" in output


def test_in_a_shell_of_tally_local_env_a_program_can_read_the_json_of_airflow(stack: Stack) -> None:
    stack.up().airflow().wait_for_dag(FAILING_ID, deadline_s=DONE_S)
    listed = json.loads(shell(stack, "airflow dags list -o json"))
    assert FAILING_ID in [dag["dag_id"] for dag in listed]
    # This command prints warnings of two libraries and an INFO line of Airflow if nothing is set.
    (run,) = json.loads(shell(stack, f"airflow dags trigger {FAILING_ID} -o json"))
    assert run["dag_id"] == FAILING_ID


def test_in_a_shell_of_tally_local_env_tally_finds_the_stack_from_any_folder(stack: Stack) -> None:
    local(stack, "topic", "create", "found")
    listed = json.loads(shell(stack, "tally local topic list --json"))
    assert listed["state_dir"] == str(stack.state_dir)
    assert "found" in [topic["topic"] for topic in listed["topics"]]


def test_a_stack_that_runs_elsewhere_is_named_if_there_is_none_here(
    stack: Stack, tmp_path: Path
) -> None:
    stack.up()
    words = [*TALLY, "local", "topic", "list", "--state-dir", str(tmp_path)]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (77, "")
    assert f"--state-dir {stack.state_dir}" in " ".join(result.stderr.split())


def test_a_topic_of_the_stack_is_filled_from_standard_input(stack: Stack) -> None:
    assert local(stack, "topic", "create", "edits", "--partitions", "2").returncode == 0
    lines = "".join(f'{{"at": {1_442_059_200 + n}, "page": "p{n % 5}"}}\n' for n in range(100))
    options = ("--time", "at", "--time-format", "epoch_s", "--key", "page")
    sent = local(stack, "produce", "edits", "-", *options, stdin=lines)
    assert sent.returncode == 0, sent.stderr
    assert "Sent 100 records to topic edits" in sent.stdout
    assert "2015-09-12 12:00 to 2015-09-12 12:01:39 (UTC)" in " ".join(sent.stdout.split())
    described = json.loads(local(stack, "topic", "describe", "edits", "--json").stdout)
    assert sum(partition["offsets"] for partition in described["partitions"]) == 100


def test_the_logs_of_a_failed_run_show_its_error_first(stack: Stack) -> None:
    airflow = stack.up().airflow()
    airflow.wait_for_dag(FAILING_ID, deadline_s=DONE_S)
    airflow.set_paused(FAILING_ID, paused=False)
    run_id = airflow.trigger(FAILING_ID)["dag_run_id"]
    followed = local(stack, "logs", FAILING_ID, run_id, "--follow")
    assert followed.returncode == 0, followed.stderr
    assert airflow.run(FAILING_ID, run_id)["state"] == "failed"
    text = local(stack, "logs", FAILING_ID).stdout
    assert f"run {run_id}: failed" in text
    assert "count failed:\n  ValueError: no rows\n" in text.split("---", maxsplit=1)[0]
    for shown in (text, followed.stdout):
        assert "counting rows" in shown
        assert "fails.py" in shown  # the frame of the project's file
        assert '{"timestamp"' not in shown
    listed = json.loads(local(stack, "logs", "--json").stdout)
    assert (FAILING_ID, "failed") in [(dag["dag_id"], dag["state"]) for dag in listed["dags"]]


def test_an_idle_dag_processor_logs_nothing_each_time_it_searches_for_files(stack: Stack) -> None:
    info = stack.up()
    info.airflow().wait_for_dag(DAG_ID, deadline_s=DONE_S)  # so it has searched
    (log,) = (path for path in info.parts["airflow"].log_paths if "dag-processor" in path)
    text = Path(log).read_text()
    assert "Refreshing bundle" not in text
    assert "Searching for files" not in text


def test_a_part_that_dies_is_started_again_with_its_data(stack: Stack) -> None:
    before = stack.up()
    s3(before).put_object(Bucket=LAKE_BUCKET, Key="kept", Body=b"1")  # type: ignore[attr-defined]
    os.kill(before.parts["s3"].pids[0], signal.SIGKILL)

    def revived() -> bool:
        info = read_stack(stack.state_dir)
        return (
            info is not None
            and info.running
            and info.parts["s3"].restarts > before.parts["s3"].restarts
        )

    wait_until(revived, deadline_s=DONE_S, what="a new S3 server")
    after = stack.up()
    assert after.parts["s3"].address == before.parts["s3"].address
    assert s3(after).get_object(Bucket=LAKE_BUCKET, Key="kept")["Body"].read() == b"1"  # type: ignore[attr-defined]


def test_down_leaves_nothing_running_and_up_finds_everything_again(stack: Stack) -> None:
    info = stack.up()
    orphan = psutil.Process(int(str(stack.run_escape()["orphan"])))
    s3(info).put_object(Bucket=LAKE_BUCKET, Key="before", Body=b"2")  # type: ignore[attr-defined]
    runs = {run["dag_run_id"] for run in info.airflow().runs(DAG_ID)}
    processes = [orphan, *stack.processes()]
    assert alive(orphan)

    assert down(stack.state_dir)
    assert not [process for process in processes if alive(process)]
    stopped = status(stack.state_dir)
    assert stopped is not None
    assert stopped.state == "stopped"
    assert not down(stack.state_dir)

    again = stack.up()
    assert again.environment() == info.environment()
    assert (again.airflow_url, again.airflow_password) == (info.airflow_url, info.airflow_password)
    assert s3(again).get_object(Bucket=LAKE_BUCKET, Key="before")["Body"].read() == b"2"  # type: ignore[attr-defined]
    assert {run["dag_run_id"] for run in again.airflow().runs(DAG_ID)} >= runs


def test_a_killed_supervisor_takes_everything_with_it(stack: Stack) -> None:
    info = stack.up()
    orphan = psutil.Process(int(str(stack.run_escape()["orphan"])))
    processes = [orphan, *stack.processes()]
    assert {"postgres", "java"} <= {name_of(process) for process in processes}
    os.kill(info.supervisor_pid, signal.SIGKILL)
    wait_until_gone(processes)
    words = [*TALLY, "local", "status", "--state-dir", str(stack.state_dir)]
    shown = subprocess.run(words, capture_output=True, text=True, check=False)
    assert shown.returncode == 77
    assert "is killed" in shown.stdout
    assert "dead" in shown.stdout
    assert "running" not in shown.stdout
    assert "127.0.0.1" not in shown.stdout


def test_error_of_a_part_that_does_not_start_names_its_log_and_the_other_parts_are_stopped(
    tmp_path: Path,
) -> None:
    state_dir = make_project(tmp_path)
    cluster = state_dir / "postgres" / "cluster"
    cluster.mkdir(parents=True)  # a folder that looks like a cluster and is not one
    lines: list[str] = []
    with pytest.raises(SettingsError) as caught:
        up(state_dir, project_dir=tmp_path, parts={"s3", "postgres"}, report=lines.append)
    assert "PostgreSQL" in str(caught.value)
    assert str(state_dir / "postgres" / "postgres.log") in str(caught.value)
    info = status(state_dir)
    assert info is not None
    assert info.state == "stopped"
    assert not [pid for part in info.parts.values() for pid in part.pids]


FOREGROUND = """
import signal, sys
from pathlib import Path
from tallystick_devstack.stack import up
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored if the tests run under nohup
up(Path(sys.argv[1]), project_dir=Path(sys.argv[2]), parts={"s3", "postgres"}, foreground=True,
   report=lambda line: print(line, flush=True))
print("returned", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("signal_at", "stopped"),
    [("postgres: up", ["postgres: stopping", "s3: stopping"]), ("s3: starting", ["s3: stopping"])],
)
def test_ctrl_c_in_the_foreground_stops_the_parts_in_reverse_order(
    tmp_path: Path, number: signal.Signals, signal_at: str, stopped: list[str]
) -> None:
    state_dir = make_project(tmp_path)
    words = [sys.executable, "-c", FOREGROUND, str(state_dir), str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(signal_at):
                break
        process.send_signal(number)
        lines = process.stdout.read().splitlines()
    assert process.returncode == 0
    assert [line for line in lines if line.endswith("stopping")] == stopped
    assert lines[-1] == "returned"
    info = status(state_dir)
    assert info is not None
    assert info.state == "stopped"
