"""Keeps `genesis serve` busy for minutes, and says whether it stayed right, fast and small.

    genesis generate MODEL --bench --batch 64 --max-tokens 128 --temperature 0     the tokens/s without a server
    python3 benches/serve_soak.py MODEL --genesis target/release/genesis --streams 64 --seconds 300 --offline 50000

64 clients in several processes ask one of a few dozen prompts each, greedily, and read the answer as it comes; every
tenth one leaves in the middle. Beside them somebody sends what is no request: broken JSON, bodies that are too large,
bytes that are no HTTP, connections that say nothing. What is checked: the same prompt always has the same answer
(another's tokens in it, or a batch that shows, would change it), the server lives and answers /health, its memory
does not grow in the second half. What is told: tokens/s by the server's own count and their ratio to `--offline`, the
median and 99th percentile of the time between two tokens, steps. Both are of the time behind `--warm-up`.

Arguments that this program does not know go to the server. Only the standard library is needed.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
import urllib.request
from array import array

SUBJECTS = ["the sea", "a clock", "bread", "a violin", "the moon", "a library", "rain", "a bridge", "salt", "a fox"]
FORMS = ["What is {}?", "Tell me a story about {}.", "Write three facts about {}.", "Why do people like {}?"]
PROMPTS = [form.format(subject) for subject in SUBJECTS for form in FORMS]
COUNTERS = {
    "tokens": "generation_tokens",
    "prompt tokens": "prompt_tokens",
    "steps": "engine_steps",
    "recorded": "recorded_steps",
    "ahead": "ahead_steps",
}


def prompts(length, variants):
    """The prompts, repeated to so many words; variants begin differently."""
    long = [" ".join((prompt.split() * length)[: max(length, len(prompt.split()))]) for prompt in PROMPTS]
    return long + [f"{number}. {prompt}" for number in range(1, variants) for prompt in long]


class Seen:
    """What the clients of a process saw; it is sent to the process that asked."""

    def __init__(self):
        self.answers = {}
        self.gaps = array("f")
        self.done = self.left = self.hostile = 0
        self.longest = (0.0, 0.0)
        self.wrong = []

    def gap(self, last, now):
        self.gaps.append(now - last)
        self.longest = max(self.longest, (now - last, now))

    def compare(self, prompt, text):
        known = self.answers.setdefault(prompt, text)
        if known != text:
            self.wrong.append(f"{prompt[:60]}: {text!r} after {known!r}")

    def add(self, other):
        for prompt, text in other.answers.items():
            self.compare(prompt, text)
        self.gaps.extend(other.gaps)
        self.done, self.left = self.done + other.done, self.left + other.left
        self.hostile += other.hostile
        self.longest = max(self.longest, other.longest)
        self.wrong += other.wrong


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


async def ask(args, seen, prompt, leaves):
    message = {"role": "user", "content": prompt}
    body = {"model": args.name, "messages": [message], "temperature": 0, "max_tokens": args.max_tokens, "stream": True}
    body = json.dumps(body).encode()
    reader, writer = await request(args.port, "POST", "/v1/chat/completions", body, "Content-Type: application/json\r\n")
    text, last = [], None
    try:
        while line := await asyncio.wait_for(reader.readline(), 120):
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                break
            now = time.monotonic()
            content = (json.loads(line[6:])["choices"] or [{}])[0].get("delta", {}).get("content")
            if not content:
                continue
            if last is not None and last >= args.begin:
                seen.gap(last, now)
            text.append(content)
            last = now
            if leaves and len(text) == 7:
                seen.left += 1
                return
        else:
            seen.wrong.append(f"{prompt[:60]}: the answer ends without [DONE]: {''.join(text)!r}")
            return
        seen.done += 1
        seen.compare(prompt, "".join(text))
    finally:
        writer.close()


async def client(args, seen, number):
    chance, asked = random.Random(number), prompts(args.prompt_words, args.variants)
    while time.monotonic() < args.end:
        try:
            await ask(args, seen, chance.choice(asked), chance.random() < 0.1)
        except (OSError, asyncio.TimeoutError) as error:
            seen.wrong.append(f"client {number}: {error!r}")
            await asyncio.sleep(1)


async def clients(args, process):
    seen = Seen()
    own = range(process, args.streams, args.processes)
    await asyncio.gather(*[client(args, seen, number) for number in own])
    return seen


async def hostile(args):
    """Sends what is no request, and looks that each is refused as it should be."""
    seen = Seen()
    good = {"model": args.name, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
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
    while time.monotonic() < args.end:
        for body, expected in refused:
            try:
                found = await status(args.port, "POST", chat, body, json_type)
            except (ConnectionError, asyncio.IncompleteReadError):
                found = expected  # closed before all of it was read
            # A full queue is said before a body is looked at.
            if found not in (expected, 422, 429):
                seen.wrong.append(f"{body[:40]!r} gave {found}, not {expected}")
            seen.hostile += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", args.port)
        writer.write(bytes(random.randrange(256) for _ in range(300)))
        idle = await asyncio.open_connection("127.0.0.1", args.port)
        half = await asyncio.open_connection("127.0.0.1", args.port)
        half[1].write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{")
        await asyncio.sleep(0.5)
        for stream in (writer, idle[1], half[1]):
            stream.close()
        seen.hostile += 3
        if (found := await status(args.port, "GET", "/health")) != 200:
            seen.wrong.append(f"/health gave {found}")
    return seen


def run(args, process):
    """The work of a process: a share of the clients, or the hostile one."""
    return asyncio.run(hostile(args) if process is None else clients(args, process))


def get(args, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{args.port}{path}", timeout=30) as answer:
        return answer.read().decode()


def counters(args):
    """When it is, and what the server has counted."""
    text, now = get(args, "/metrics"), time.monotonic()
    count = lambda name: float((re.search(rf"^genesis_{name}_total\S* (\S+)", text, re.M) or [0, 0])[1])
    return now, {name: count(counter) for name, counter in COUNTERS.items()}


def resident(pid):
    """MiB of memory that a process has in use."""
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0


def soak(args, pid):
    start = time.monotonic()
    args.begin, args.end = start + args.warm_up, start + args.warm_up + args.seconds
    jobs = list(range(args.processes)) + ([] if args.peaceful else [None])
    with multiprocessing.Pool(len(jobs)) as pool:
        results = pool.starmap_async(run, [(args, job) for job in jobs])
        time.sleep(args.warm_up)
        first, before = counters(args)
        time.sleep(args.seconds / 2)
        half = resident(pid)
        time.sleep(max(0, args.end - time.monotonic()))
        last, after = counters(args)
        memory = resident(pid)
        seen = Seen()
        for other in results.get(timeout=150):
            seen.add(other)
    tell(args, seen, last - first, {name: after[name] - before[name] for name in after})
    print(f"memory {half:.0f} MiB after half of the time, {memory:.0f} MiB at the end")
    if memory > half * 1.05 + 16:
        seen.wrong.append("memory grows")
    for line in seen.wrong[:20]:
        print("WRONG", line[:400])
    return not seen.wrong


def tell(args, seen, took, counted):
    print(f"{seen.done} answers, {seen.left} clients left, {seen.hostile} hostile connections, {took:.0f} s")
    rate = counted["tokens"] / took
    ratio = f", {rate / args.offline:.3f} of {args.offline:.0f} offline" if args.offline else ""
    print(f"{rate:.1f} tokens/s{ratio}, {counted['prompt tokens'] / took:.1f} tokens/s of prompts")
    gaps = sorted(seen.gaps)
    if gaps:
        median, p99, p999 = (gaps[int(share * (len(gaps) - 1))] * 1e3 for share in (0.5, 0.99, 0.999))
        long, at = seen.longest
        print(
            f"between two tokens {median:.2f} ms, p99 {p99:.2f} ms ({p99 / median:.2f} times), p99.9 {p999:.2f} ms, "
            f"longest {long * 1e3:.1f} ms after {at - args.begin:.1f} s"
        )
    print(", ".join(f"{counted[name]:.0f} {name}" for name in ("steps", "recorded", "ahead")))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--genesis", default="genesis")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="of clients")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--warm-up", type=float, default=5, help="seconds ahead that do not count")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prompt-words", type=int, default=0, help="words of a prompt, at least")
    parser.add_argument("--variants", type=int, default=1, help="of each prompt, which share no prefix in the cache")
    parser.add_argument("--offline", type=float, help="tokens/s without a server")
    parser.add_argument("--peaceful", action="store_true", help="nobody sends what is no request")
    parser.add_argument("--prompts", metavar="FILE", help="only write the prompts as jsonl, for genesis generate")
    return parser.parse_known_args()


def main():
    args, more = arguments()
    if args.prompts:
        with open(args.prompts, "w") as file:
            asked = prompts(args.prompt_words, args.variants)
            for number in range(4 * args.streams):
                file.write(json.dumps({"prompt": asked[number % len(asked)]}) + "\n")
        return
    args.processes = min(args.processes, args.streams)
    command = [args.genesis, "serve", args.model, "--port", "0", "--max-streams", str(args.streams), *more]
    begun = time.monotonic()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        args.port = None
        for line in server.stdout:
            print("server:", line.rstrip())
            if "http://" in line:
                args.port = int(line.split("http://")[1].split("/")[0].split()[0].rsplit(":", 1)[1])
                break
        if args.port is None:
            sys.exit("the server did not start")
        print(f"ready after {time.monotonic() - begun:.2f} s")
        args.name = json.loads(get(args, "/v1/models"))["data"][0]["id"]
        is_right = soak(args, server.pid)
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}")
    finally:
        server.terminate()
        for line in server.stdout:
            print("server:", line.rstrip())
        server.wait(30)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
