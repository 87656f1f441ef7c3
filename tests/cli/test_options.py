"""What an object store needs, from the command line: it arrives, mistakes are told, and no key is shown."""

from __future__ import annotations

import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

import trueline as tl
from tests.chain.store.small_s3 import KEY, SECRET, serving
from trueline.chain.store.options import nested, with_retries, without_secrets
from trueline.errors import InputError

_numbers = count()


@pytest.fixture(scope="module")
def server():
    with serving() as found:
        yield found


@pytest.fixture
def url(tmp_path, monkeypatch):
    for name in ("CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    return f"s3://bucket/command-line-{next(_numbers)}"


def words(options, *more):
    """Options of a provider as words of a command line."""
    client = {f"client_options.{key}": str(value).lower() for key, value in options["client_options"].items()}
    flat = {**{key: value for key, value in options.items() if key != "client_options"}, **client}
    return [word for key, value in [*flat.items(), *more] for word in ("--option", f"{key}={value}")]


@pytest.fixture
def refusing():
    """A server that is always busy, and counts who asks."""
    asked = []

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_workspace_in_an_object_store_is_reached_with_options(run, url, server, tmp_path):
    given = words(server.options)
    assert run(*given, "init", url).code == 0
    assert run(*given, "-C", url, "create", "sales").code == 0
    (tmp_path / "x.csv").write_text("n\n1\n2\n")
    done = run(*given, "-C", url, "ingest", "sales", tmp_path / "x.csv")
    assert done.code == 0, done.err
    assert run(*given, "list", "-C", url, "--json").json["datasets"][0]["rows"] == 2
    assert run(*given, "-C", url, "config", "list").code == 0
    assert run("-C", url, *given, "verify").code == 0


def test_a_dataset_goes_there_and_comes_back_with_options(run, url, server, shop, tmp_path):
    given = words(server.options)
    sent = run("-C", shop, "push", "sales", f"{url}/sales", *given)
    assert sent.code == 0, sent.err
    assert run("init", tmp_path / "copy").code == 0
    done = run("-C", tmp_path / "copy", "clone", f"{url}/sales", "sales", *given, "--json")
    assert done.code == 0, done.err
    assert done.json["rows"] == 3
    # Nor is a key in what is kept of where it came from.
    kept = b"".join(path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file())
    assert SECRET.encode() not in kept + (sent.out + sent.err + done.out + done.err).encode()


def test_a_store_that_does_not_answer_is_asked_as_often_as_was_said_and_no_key_is_shown(run, url, refusing):
    endpoint, asked = refusing
    options = {
        "endpoint": endpoint,
        "access_key_id": KEY,
        "secret_access_key": SECRET,
        "region": "here",
        "client_options": {"allow_http": True},
    }
    done = run(*words(options, ("retry_config.max_retries", "2")), "-C", url, "list")
    assert done.code == 4
    assert len(asked) == 3
    assert "the network and the option endpoint" in done.err
    assert SECRET not in done.out + done.err
    asked.clear()
    with pytest.raises(tl.errors.StoreError) as caught:
        tl.open(url, **{**options, "retry_config": {"max_retries": 10, "retry_timeout": "0s"}})
    assert len(asked) == 1
    assert SECRET not in str(caught.value) + repr(caught.value.fields)


def test_a_request_is_tried_again_for_15_seconds_unless_something_else_is_said():
    assert with_retries({})["retry_config"] == {"retry_timeout": timedelta(seconds=15)}
    for said, seconds in (("2m", 120), ("90", 90), (90, 90), (1.5, 1.5), ("500ms", 0.5), ("1h", 3600)):
        found = with_retries({"region": "x", "retry_config": {"max_retries": 3, "retry_timeout": said}})
        assert found == {
            "region": "x",
            "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=seconds)},
        }
    for wrong in ("soon", True, None, "-1s", ""):
        with pytest.raises(InputError, match=r"retry_config\.retry_timeout is not a duration"):
            with_retries({"retry_config": {"retry_timeout": wrong}})
    with pytest.raises(InputError, match="not a group"):
        with_retries({"retry_config": "2m"})


@pytest.mark.parametrize(
    "wrong", [SECRET, f"={SECRET}", f".={SECRET}", f"create={SECRET}", f"spark={SECRET}"]
)
def test_an_option_that_is_none_is_refused_without_its_value(run, url, shop, wrong):
    for line in (
        ["--option", wrong, "-C", url, "list"],
        ["-C", shop, "push", "sales", url, "--option", wrong],
    ):
        done = run(*line)
        assert done.code == 2
        assert "option" in done.err
        assert SECRET not in done.out + done.err


@pytest.mark.parametrize(
    "name", ["secret_access_kee", "skip_signature", "client_options.timeout", "conditional_put"]
)
def test_an_option_that_the_provider_refuses_is_named_without_its_value(run, url, name):
    done = run("--option", f"{name}={SECRET}", "-C", url, "list")
    assert done.code == 2, done.err
    assert "cannot open" in done.err
    assert SECRET not in done.out + done.err


def test_a_folder_takes_no_options(run, shop):
    done = run("--option", f"secret_access_key={SECRET}", "-C", shop, "list")
    assert (done.code, "takes no option 'secret_access_key'" in done.err) == (2, True)
    assert SECRET not in done.err


def test_names_with_dots_are_groups():
    assert nested([("a", "1"), ("g.b", "2"), ("g.c", "3")]) == {"a": "1", "g": {"b": "2", "c": "3"}}
    with pytest.raises(InputError, match=r"no option 'a\.b'"):
        nested([("a", "1"), ("a.b", "2")])


def test_what_follows_the_question_mark_of_an_address_may_be_a_key():
    told = "Error performing GET https://host/x?sv=1&sig=abc in 2 s for hunter2 at eu-1"
    options = {"region": "eu-1", "client_options": {"proxy_password": "hunter2"}}
    assert without_secrets(told, options) == "Error performing GET https://host/x?… in 2 s for … at eu-1"
