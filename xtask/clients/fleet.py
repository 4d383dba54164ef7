"""Two `genie serve` behind nginx and behind a LiteLLM proxy, on loopback: hit rates of cached prompts, drain, and a killed server.

Started by `cargo xtask fleet`, which sets GENIE (the program), FLEET (a folder for configurations), NGINX and LITELLM (programs). Prints
JSON records and writes the two configurations of docs/fleet.md. Ends with 1 if a promise of that page was not kept.
"""

import concurrent.futures
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time

GENIE, FOLDER = os.environ["GENIE"], os.environ["FLEET"]
KEY = "fleet-key"
CONVERSATIONS, TURNS = 6, 4
FAULTS = []


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def call(at, method, path, body=None, headers=None, timeout=60):
    connection = http.client.HTTPConnection("127.0.0.1", at, timeout=timeout)
    head = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **(headers or {})}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), head)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def until(what, seconds=90):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if what():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("nothing answers")


class Server:
    def __init__(self, at):
        self.at = at
        command = [GENIE, "serve", "--port", str(at), "--api-key", KEY, "--no-access-log", "--threads", "1", "--drain", "60"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until(lambda: call(at, "GET", "/health")[0] == 200)

    def metrics(self):
        lines = call(self.at, "GET", "/metrics")[1].splitlines()
        return {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if not line.startswith("#")}

    def end(self, number=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait()


NGINX_CONFIG = """daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream genie {{
        {balance}
        server 127.0.0.1:{one} max_fails=1 fail_timeout=5s;
        server 127.0.0.1:{two} max_fails=1 fail_timeout=5s;
        keepalive 32;
    }}
    server {{
        listen 127.0.0.1:{listen};
        location / {{
            proxy_pass http://genie;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
            proxy_buffering off;
            proxy_read_timeout 600s;
            # A server that is gone, or that ends, did not begin with the request: the other one gets it.
            proxy_next_upstream error http_503 http_429 non_idempotent;
            proxy_next_upstream_tries 2;
        }}
    }}
}}
"""


class Nginx:
    def __init__(self, servers, sticky):
        self.at = port()
        balance = "hash $http_x_conversation consistent;" if sticky else ""
        text = NGINX_CONFIG.format(
            folder=FOLDER, balance=balance, one=servers[0].at, two=servers[1].at, listen=self.at
        )
        path = os.path.join(FOLDER, "nginx.conf")
        with open(path, "w") as file:
            file.write(text)
        self.process = subprocess.Popen([os.environ["NGINX"], "-c", path, "-p", FOLDER], stderr=subprocess.DEVNULL)
        until(lambda: call(self.at, "GET", "/health")[0] == 200)

    def end(self):
        self.process.terminate()
        self.process.wait()


class Lite:
    def __init__(self, servers, sticky):
        self.at = port()
        models = "".join(
            f"  - model_name: demo\n    litellm_params: {{model: openai/demo, api_base: 'http://127.0.0.1:{s.at}/v1', api_key: {KEY}}}\n"
            for s in servers
        )
        checks = "  optional_pre_call_checks: [session_affinity]\n" if sticky else ""
        text = (
            f"model_list:\n{models}"
            f"router_settings:\n  routing_strategy: simple-shuffle\n  num_retries: 3\n  allowed_fails: 0\n  cooldown_time: 5\n{checks}"
            f"general_settings: {{master_key: sk-{KEY}}}\n"
        )
        path = os.path.join(FOLDER, "litellm.yaml")
        with open(path, "w") as file:
            file.write(text)
        env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        command = [os.environ["LITELLM"], "--config", path, "--host", "127.0.0.1", "--port", str(self.at)]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: call(self.at, "GET", "/health/liveliness")[0] == 200, 180)

    def end(self):
        self.process.terminate()
        self.process.wait()


def ask(router, conversation, messages, **more):
    body = {"model": "demo", "messages": messages, "max_tokens": 12, "temperature": 0, **more}
    headers = {"X-Conversation": conversation}
    if isinstance(router, Lite):
        body["metadata"] = {"session_id": conversation}
        headers["Authorization"] = f"Bearer sk-{KEY}"
    return call(router.at, "POST", "/v1/chat/completions", body, headers)


def hit_rate(router, servers, word):
    """Conversations that grow turn by turn, in a mixed order; how much of their prompts was cached."""
    before = [server.metrics() for server in servers]
    begin = f"{word}: the quality of mercy is not strained, it droppeth as the gentle rain from heaven. "
    chats = [[{"role": "user", "content": f"{n} {begin}"}] for n in range(CONVERSATIONS)]
    for turn in range(TURNS):
        for n in sorted(range(CONVERSATIONS), key=lambda n: (n * 5 + turn * 3) % CONVERSATIONS):
            status, text = ask(router, f"{word}-{n}", chats[n])
            assert status == 200, text
            reply = json.loads(text)["choices"][0]["message"]["content"]
            chats[n] += [{"role": "assistant", "content": reply}, {"role": "user", "content": f"And {turn}?"}]
    after = [server.metrics() for server in servers]
    grown = lambda key: sum(b[key] - a[key] for a, b in zip(before, after))
    return round(grown("genie_cached_tokens_total") / grown("genie_prompt_tokens_total"), 3)


def under_load(router, n, act, **more):
    """Requests of which many run when `act` is called; the replies in order."""
    chat = lambda k: [{"role": "user", "content": f"load {k}"}]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        def one(k):
            try:
                return ask(router, f"load-{k}", chat(k), max_tokens=60, ignore_eos=True, **more)
            except (OSError, http.client.HTTPException) as error:
                return 0, str(error)
        jobs = [pool.submit(one, k) for k in range(n)]
        until(lambda: sum(job.done() for job in jobs) >= 4)
        act()
        return [job.result() for job in jobs]


def promise(kept, what, record):
    print(json.dumps({"check": what, "kept": bool(kept), **record}), flush=True)
    if not kept:
        FAULTS.append(what)


def ends(text):
    return text.rstrip().endswith("data: [DONE]")


def whole(text):
    try:
        return json.loads(text)["usage"]["completion_tokens"] == 60
    except (ValueError, KeyError, TypeError):
        return False


def main():
    rates = {}
    for make in [Nginx, Lite]:
        for sticky in [False, True]:
            servers = [Server(port()), Server(port())]
            router = make(servers, sticky)
            name = f"{make.__name__.lower()}{'_sticky' if sticky else ''}"
            rates[name] = hit_rate(router, servers, name)
            print(json.dumps({"router": name, "hit_rate": rates[name]}), flush=True)
            router.end()
            for server in servers:
                server.end()
        plain, sticky = make.__name__.lower(), f"{make.__name__.lower()}_sticky"
        promise(rates[sticky] > rates[plain], f"sticky routing hits more: {plain}", {})
    for make in [Nginx, Lite]:
        servers = [Server(port()), Server(port())]
        router = make(servers, True)
        replies = under_load(router, 32, lambda: servers[0].process.send_signal(signal.SIGTERM))
        lost = [reply for reply in replies if reply[0] != 200 or not whole(reply[1])]
        promise(not lost, f"drain loses nothing: {make.__name__.lower()}", {"lost": len(lost), "seen": lost[:2]})
        servers[0].end()
        servers[0] = Server(servers[0].at)
        time.sleep(6)
        running = {}

        def kill():
            end = time.monotonic() + 10
            while time.monotonic() < end and not servers[0].metrics()["genie_requests_processing"]:
                time.sleep(0.02)
            running["n"] = servers[0].metrics()["genie_requests_processing"] + servers[0].metrics()["genie_requests_deferred"]
            servers[0].end()

        replies = under_load(router, 32, kill)
        lost = [reply for reply in replies if reply[0] != 200]
        cut = [reply for reply in replies if reply[0] == 200 and not whole(reply[1])]
        # A router may try the other server with a request whose first one died: then fewer are lost than ran.
        promise(
            len(lost) <= 12 and not cut, f"a kill loses only what ran: {make.__name__.lower()}",
            {"lost": len(lost), "ran": running["n"], "statuses": sorted({reply[0] for reply in lost})},
        )
        servers[0] = Server(servers[0].at)
        time.sleep(6)
        replies = under_load(router, 32, kill, stream=True)
        broken = [reply for reply in replies if reply[0] != 200 or not ends(reply[1])]
        promise(
            0 < running["n"] and len(broken) <= running["n"], f"a kill breaks no stream but those that ran: {make.__name__.lower()}",
            {"broken": len(broken), "ran": running["n"], "seen": [(status, text[-160:]) for status, text in broken[:2]]},
        )
        router.end()
        for server in servers:
            server.end()
    return 1 if FAULTS else 0


sys.exit(main())
