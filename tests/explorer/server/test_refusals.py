"""What the server refuses: only 2xx and 4xx, one sentence, and never an answer to whoever may not ask."""

import json
import random

import pytest

from needlepoint.explorer.limits import Limits
from needlepoint.explorer.settings import Settings

from explorer_cases import VALID, spoiled

pytest.importorskip("starlette", reason="no starlette: pip install 'needlepoint[explorer]'")
from starlette.testclient import TestClient

from needlepoint.explorer.server.app import application
from needlepoint.explorer.server.guard import HEADERS, POLICY
from needlepoint.explorer.workers.crew import Busy

BASE = "http://127.0.0.1:8000"


class Paper:
    """A crew that answers everything at once and computes nothing."""

    def __init__(self, limits):
        self.limits, self.full, self.asked = limits, False, []

    async def answer(self, document):
        if self.full:
            raise Busy
        self.asked.append(document)
        yield {"event": "started", "worker": 0}
        yield {"event": "done"}


@pytest.fixture
def client():
    settings = Settings(token="secret", hosts=("atlas.example",), limits=Limits(settle=1e9))
    app = application(settings)
    with TestClient(app, base_url=BASE, raise_server_exceptions=True) as client:
        app.state.crew = Paper(settings.limits)
        client.headers["x-needlepoint-token"] = "secret"
        yield client


def ask(client, document, **options):
    body = document if isinstance(document, (bytes, str)) else json.dumps(document)
    headers = {"content-type": "application/json", **options.pop("headers", {})}
    return client.post("/ask", content=body, headers=headers, **options)


def refused(response, status):
    assert response.status_code == status, response.text
    sentence = response.json()["sentence"]
    assert sentence.endswith((".", "?")), sentence
    assert "Traceback" not in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("question", VALID, ids=lambda q: q["kind"])
def test_valid_questions_are_answered(client, question):
    response = ask(client, question)
    assert response.status_code == 200, response.text
    assert [json.loads(line)["event"] for line in response.text.splitlines()] == ["started", "done"]
    assert client.app.state.crew.asked == [question]


def test_the_page_and_its_files_need_no_token_and_carry_the_policy(client):
    del client.headers["x-needlepoint-token"]
    page = client.get("/")
    assert page.status_code == 200
    root = page.text.partition('href="')[2].partition("/icon.svg")[0]
    for name in (
        "style.css",
        "js/main.js",
        "vendor/math/katex/katex.min.js",
        "vendor/charts/plotly/plotly-cartesian.min.js",
    ):
        found = client.get(f"{root}/{name}")
        assert found.status_code == 200, name
        assert found.headers["content-security-policy"] == POLICY
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert found.headers["cross-origin-opener-policy"] == "same-origin"
    refused(client.get("/files/x/style.css"), 404)


def test_the_policy_is_the_one_that_was_decided():
    assert POLICY == (
        "default-src 'none'; script-src 'self'; style-src-elem 'self'; style-src-attr 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )


@pytest.mark.parametrize("token", ["", "Secret", "secret ", "é" * 9, "x" * 5000])
def test_a_question_needs_the_token(client, token):
    refused(ask(client, VALID[0], headers={"x-needlepoint-token": token.encode()}), 401)
    assert client.app.state.crew.asked == []


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "127.0.0.1.example.com",
        "127.0.0.2",
        "localhost.example.com:80",
        "[::2]",
        "",
        "127.0.0.1:x",
        "a b",
    ],
)
def test_foreign_hosts_are_refused_for_every_address(client, host):
    for response in (client.get("/", headers={"host": host}), ask(client, VALID[0], headers={"host": host})):
        refused(response, 403)
        assert response.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "LOCALHOST:65535", "[::1]:8000", "atlas.example:81"])
def test_names_of_this_machine_are_welcome_at_any_port(client, host):
    assert ask(client, VALID[0], headers={"host": host}).status_code == 200
    assert ask(client, VALID[0], headers={"host": host, "origin": f"http://{host.lower()}"}).status_code == 200


@pytest.mark.parametrize("origin", ["null", "http://example.com", "http://127.0.0.1:8001", "http://localhost:8000", ""])
def test_foreign_origins_are_refused(client, origin):
    refused(ask(client, VALID[0], headers={"origin": origin}), 403)
    refused(ask(client, VALID[0], headers={"sec-fetch-site": "cross-site"}), 403)


def test_every_answer_has_the_headers(client):
    for response in (client.get("/"), ask(client, VALID[0]), client.get("/nothing"), client.put("/ask")):
        assert {k: response.headers[k] for k in HEADERS} == HEADERS


@pytest.mark.parametrize(
    "path",
    [
        *("/../../etc/passwd", "/files/../../../etc/passwd", "/files/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"),
        *(
            "/files/..%2f..%2fetc/passwd",
            "/files//etc/passwd",
            "/files/x/../index.html",
            "/index.html",
            "/ask/",
            "/%00",
        ),
    ],
)
def test_paths_lead_nowhere(client, path):
    response = client.get(path, follow_redirects=False)
    assert 400 <= response.status_code < 500 or response.status_code == 307, (path, response.status_code)
    assert "root:" not in response.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "GET", "HEAD"])
def test_other_methods_are_refused(client, method):
    assert client.request(method, "/ask").status_code == 405


def test_bodies_have_a_limit(client):
    limits = client.app.state.crew.limits
    refused(ask(client, b" " * (limits.matrix + 1)), 413)
    padded = json.dumps({**VALID[4], "x": "y" * limits.body})
    refused(ask(client, padded), 413)

    def endless():
        for _ in range(200):
            yield b"[" * 100_000

    response = client.post("/ask", content=endless(), headers={"content-type": "application/json"})
    refused(response, 413)
    for length in ("-1", "1e3", "9" * 30, "٣"):
        found = ask(client, VALID[0], headers={"content-length": length.encode()})
        assert 400 <= found.status_code < 500


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff\xfe", b"null", b"[]", b'"hello"', b"1", b"\x00", b"1" * 5000, b'{"kind":"hello"}}'),
        *(b'{"kind": NaN}', b'{"kind": "best", "alphas": [Infinity]}', b'{"kind": "hello", "x": -Infinity}'),
        *(b"[" * 100_000, b'{"a":' * 5000),
    ],
)
def test_what_is_no_question_is_refused(client, body):
    refused(ask(client, body), 400)


def test_only_json_is_taken(client):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        refused(ask(client, VALID[0], headers={"content-type": kind}), 415)


def test_a_full_queue_says_later(client):
    client.app.state.crew.full = True
    response = ask(client, VALID[0])
    refused(response, 429)
    assert response.headers["retry-after"] == "1"


def test_nothing_is_evaluated(client, tmp_path):
    mark = tmp_path / "evaluated"
    for text in (
        f"open({str(mark)!r}, 'w')",
        f"__import__('pathlib').Path({str(mark)!r}).touch()",
        "SpikedSLR.__init__",
    ):
        refused(ask(client, {**VALID[4], "task": text}), 400)
    assert not mark.exists()


def storm(client, count):
    draw = random.Random(24)
    seen = {}
    for _ in range(count):
        question = spoiled(draw)
        response = ask(client, json.dumps(question))
        kind = response.status_code // 100
        assert kind in (2, 4), (question, response.text)
        if kind == 4:
            assert set(response.json()) == {"sentence"}, question
            assert "Traceback" not in response.text
        seen[kind] = seen.get(kind, 0) + 1
    return seen


def test_mutated_questions_are_answered_or_refused(client):
    seen = storm(client, 2000)
    assert seen[4] > 1000
    assert seen[2] > 5  # some mutations leave a question valid, so that both sides are seen


@pytest.mark.slow
def test_ten_thousand_mutated_questions_are_answered_or_refused(client):
    assert sum(storm(client, 10_000).values()) == 10_000
