"""Keeps `genesis serve` busy for minutes, and says whether it stayed right, fast and small.

    genesis generate MODEL --prompts .. --batch 64 --out ..    the tokens/s of the same prompts without a server
    python3 benches/serve_soak.py --genesis target/release/genesis MODEL --streams 64 --seconds 300

64 clients ask one of a few dozen prompts each, greedily, and read the answer as it comes; every tenth one leaves in
the middle. Beside them somebody sends what is no request: broken JSON, bodies that are too large, bytes that are no
HTTP, connections that say nothing. What is checked: the same prompt always has the same answer (another's
tokens in it, or a batch that shows, would change it), the server lives and answers /health, its memory does not
grow in the second half. What is told: tokens/s, the median and 99th percentile of the time between two tokens.

Only the standard library is needed.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time

SUBJECTS = ["the sea", "a clock", "bread", "a violin", "the moon", "a library", "rain", "a bridge", "salt", "a fox"]
FORMS = ["What is {}?", "Tell me a story about {}.", "Write three facts about {}.", "Why do people like {}?"]
PROMPTS = [form.format(subject) for subject in SUBJECTS for form in FORMS]


class Seen:
    """What clients saw."""

    def __init__(self, model):
        self.model = model
        self.answers = {}
        self.gaps = []
        self.tokens = self.done = self.left = self.hostile = 0
        self.wrong = []


async def request(port, method, path, body, headers=""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = f"Content-Length: {len(body)}\r\n" if body or method == "POST" else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{length}{headers}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def status(port, method, path, body=b"", headers=""):
    """The status of an answer, 0 where the server closed without one."""
    reader, writer = await request(port, method, path, body, headers)
    try:
        line = await asyncio.wait_for(reader.readline(), 30)
        return int(line.split()[1]) if line else 0
    finally:
        writer.close()


async def model_of(port):
    """The name that the server gives its model."""
    reader, writer = await request(port, "GET", "/v1/models", b"")
    answer = await reader.read()
    writer.close()
    return json.loads(answer[answer.index(b"{") :].rsplit(b"}", 1)[0] + b"}")["data"][0]["id"]


async def ask(port, seen, prompt, max_tokens, leaves):
    message = {"role": "user", "content": prompt}
    body = {"model": seen.model, "messages": [message], "temperature": 0, "max_tokens": max_tokens, "stream": True}
    body = json.dumps(body).encode()
    reader, writer = await request(port, "POST", "/v1/chat/completions", body, "Content-Type: application/json\r\n")
    text, count, last = "", 0, None
    try:
        while line := await asyncio.wait_for(reader.readline(), 120):
            line = line.strip()
            if not line.startswith(b"data: "):
                continue
            if line == b"data: [DONE]":
                break
            delta = json.loads(line[6:])["choices"][0]["delta"].get("content")
            if not delta:
                continue
            now = time.monotonic()
            if last is not None:
                seen.gaps.append(now - last)
            text, count, last = text + delta, count + 1, now
            seen.tokens += 1
            if leaves and count == 7:
                seen.left += 1
                return
        else:
            seen.wrong.append(f"{prompt}: the answer ends without [DONE]: {text!r}")
            return
        seen.done += 1
        known = seen.answers.setdefault(prompt, text)
        if known != text:
            seen.wrong.append(f"{prompt}: {text!r} after {known!r}")
    finally:
        writer.close()


async def client(port, seen, number, end, max_tokens):
    chance = random.Random(number)
    while time.monotonic() < end:
        try:
            await ask(port, seen, chance.choice(PROMPTS), max_tokens, chance.random() < 0.1)
        except (OSError, asyncio.TimeoutError) as error:
            seen.wrong.append(f"client {number}: {error!r}")
            await asyncio.sleep(1)


async def hostile(port, seen, end):
    """Sends what is no request, and looks that each is refused as it should be."""
    good = {"model": seen.model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    chat, json_type = "/v1/chat/completions", "Content-Type: application/json\r\n"
    refused = [
        (b"{", 400),
        (b"[]", 400),
        (b"\xff\xfe", 400),
        (json.dumps({**good, "temperature": "hot"}).encode(), 400),
        (json.dumps({**good, "messages": []}).encode(), 400),
        (json.dumps({**good, "max_tokens": 1 << 60, "n": 1 << 40}).encode(), 400),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, 400),
        (b" " * (9 << 20), 413),
    ]
    while time.monotonic() < end:
        for body, expected in refused:
            try:
                found = await status(port, "POST", chat, body, json_type)
            except (ConnectionError, asyncio.IncompleteReadError):
                found = expected  # closed before all of it was read
            # A full queue is said before a body is looked at.
            if found not in (expected, 422, 429):
                seen.wrong.append(f"{body[:40]!r} gave {found}, not {expected}")
            seen.hostile += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes(random.randrange(256) for _ in range(300)))
        idle = await asyncio.open_connection("127.0.0.1", port)
        half = await asyncio.open_connection("127.0.0.1", port)
        half[1].write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{")
        await asyncio.sleep(0.5)
        for stream in (writer, idle[1], half[1]):
            stream.close()
        seen.hostile += 3
        if (found := await status(port, "GET", "/health")) != 200:
            seen.wrong.append(f"/health gave {found}")


def resident(pid):
    """MiB of memory that a process has in use."""
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0


async def memory(pid, seconds):
    """Memory after half of the time, and at its end."""
    await asyncio.sleep(seconds / 2)
    half = resident(pid)
    await asyncio.sleep(seconds / 2)
    return half, resident(pid)


async def soak(args, port, pid):
    seen, end = Seen(await model_of(port)), time.monotonic() + args.seconds
    start = time.monotonic()
    clients = [client(port, seen, number, end, args.max_tokens) for number in range(args.streams)]
    half, last = (await asyncio.gather(memory(pid, args.seconds), hostile(port, seen, end), *clients))[0]
    took = time.monotonic() - start
    gaps = sorted(seen.gaps)
    share = lambda p: gaps[min(len(gaps) - 1, int(p * len(gaps)))] * 1e3 if gaps else float("nan")
    print(f"{seen.done} answers, {seen.left} clients left, {seen.hostile} hostile connections, {took:.0f} s")
    print(f"{seen.tokens / took:.1f} tokens/s; between two tokens {share(0.5):.1f} ms, p99 {share(0.99):.1f} ms")
    print(f"memory {half:.0f} MiB after half of the time, {last:.0f} MiB at the end")
    for line in seen.wrong[:20]:
        print("WRONG", line)
    if last > half * 1.05 + 16:
        seen.wrong.append("memory grows")
        print("WRONG memory grows")
    return not seen.wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--genesis", default="genesis")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prompts", metavar="FILE", help="only write the prompts as jsonl, for genesis generate")
    args, more = parser.parse_known_args()
    if args.prompts:
        with open(args.prompts, "w") as file:
            for number in range(4 * args.streams):
                file.write(json.dumps({"prompt": PROMPTS[number % len(PROMPTS)]}) + "\n")
        return
    command = [args.genesis, "serve", args.model, "--port", "0", "--max-streams", str(args.streams), *more]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        port = None
        for line in server.stdout:
            print("server:", line.rstrip())
            if "http://" in line:
                port = int(line.split("http://")[1].split("/")[0].split()[0].rsplit(":", 1)[1])
                break
        if port is None:
            sys.exit("the server did not start")
        is_right = asyncio.run(soak(args, port, server.pid))
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}")
    finally:
        server.terminate()
        server.wait(30)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
