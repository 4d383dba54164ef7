"""Loads a server that speaks llama.cpp's `POST /completion`: load.py PORT CLIENTS REQUESTS_PER_CLIENT TEXT

Each client sends its requests one after the other: 30 words drawn from TEXT (the same for every server), 128 greedy tokens, streamed. Prints the
rate of all clients' tokens, the time to the first token, and the times between the pieces of a reply. Standard library only.
"""

import http.client
import json
import random
import sys
import threading
import time

port, clients, each, text = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
draw = random.Random(5)
words = [word for word in open(text, encoding="utf-8").read().split() if word.isalpha()]
prompts = [[" ".join(draw.choice(words) for _ in range(30)) for _ in range(each)] for _ in range(clients)]
first_tokens, between, n_out, n_in = [], [], [], []
lock = threading.Lock()


def client(prompts):
    for prompt in prompts:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        body = {"prompt": prompt, "n_predict": 128, "stream": True, "temperature": 0, "ignore_eos": True}
        begin = last = time.perf_counter()
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            sys.exit(f"{reply.status}: {reply.read(300)}")
        gaps = []
        for line in reply:
            if not line.startswith(b"data: ") or b"[DONE]" in line:
                continue
            event, now = json.loads(line[6:]), time.perf_counter()
            if event.get("stop"):
                with lock:
                    n_out.append(event["tokens_predicted"])
                    n_in.append(event["tokens_evaluated"])
                break
            gaps.append(now - last)
            last = now
        with lock:
            first_tokens.append(gaps[0])
            between.extend(gaps[1:])
        connection.close()


def ms(times, share):
    return sorted(times)[min(len(times) - 1, int(share * len(times)))] * 1000


begin = time.perf_counter()
threads = [threading.Thread(target=client, args=(list,)) for list in prompts]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
seconds = time.perf_counter() - begin
print(
    f"{clients} clients: {sum(n_out) / seconds:.1f} tokens/s, first token p50 {ms(first_tokens, 0.5):.0f} p99 {ms(first_tokens, 0.99):.0f} ms, "
    f"between p50 {ms(between, 0.5):.1f} p99 {ms(between, 0.99):.1f} ms ({sum(n_in)} tokens in, {sum(n_out)} out, {seconds:.1f} s)"
)
