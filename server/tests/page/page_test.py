#!/usr/bin/env python3
"""The page in Chromium: `python3 server/tests/page/page_test.py [--shots FOLDER] [NAME...]`.

Starts `genie serve` on the demo model (GENIE_PROGRAM, else target/debug/genie) and drives the page with Playwright and the
system's Chromium (CHROMIUM, else /usr/bin/chromium). Each test has a browser context of its own. `.ci/run` installs what is missing.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

from playwright.sync_api import expect, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = os.environ.get("GENIE_PROGRAM", str(ROOT / "target/debug/genie"))
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
KEY = "a-key"
WAIT = 60_000
SHOTS = None


class Server:
    """`genie serve` on a free port, until `end`."""

    def __init__(self, *args):
        command = [PROGRAM, "serve", "--port", "0", "--threads", "1", "--no-access-log", *args]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.startswith("serving on "):
                self.url = line.split()[-1] + "/"
                break
        else:
            raise SystemExit(f"the server did not start:\n{''.join(said)}")
        # What it says later must not fill the pipe.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def end(self):
        self.process.terminate()
        self.process.wait(30)


def settle(page, url, **settings):
    """Opens the page with these settings."""
    page.goto(url)
    page.evaluate("(value) => localStorage.setItem('genie.settings', value)", json.dumps({"temperature": 0, "seed": 1, **settings}))
    page.reload()
    expect(page.locator("#model")).to_contain_text("slots", timeout=WAIT)


def ask(page, text):
    page.fill("#draft", text)
    page.press("#draft", "Enter")


def answered(page, n=1):
    """Waits until the n-th reply is whole; returns its text."""
    expect(page.locator(".message.assistant")).to_have_count(n, timeout=WAIT)
    expect(page.locator(".message.assistant").last).to_have_attribute("aria-busy", "false", timeout=WAIT)
    return page.locator(".message.assistant .text").last.inner_text()


def shot(page, name):
    if SHOTS:
        page.screenshot(path=str(pathlib.Path(SHOTS) / f"{name}.png"))


def chat(page, server):
    settle(page, server.url, max_tokens=24)
    ask(page, "ROMEO:")
    text = answered(page)
    assert text.strip(), "an empty reply"
    expect(page.locator(".stats").last).to_contain_text("first token")
    expect(page.locator("#gauge-text")).not_to_contain_text(re.compile(r"^0 of"))
    ask(page, "JULIET:")
    answered(page, 2)
    # The second prompt begins with the first: its rows were there.
    expect(page.locator(".stats").last).to_contain_text("cached")
    shot(page, "chat")


def at_first_text(page, count, action):
    """Runs `action` in the page once the `count`-th reply shows text: a whole reply may be there before a driver could act."""
    script = """(count) => {
        const seen = new MutationObserver(() => {
            const texts = document.querySelectorAll(".message.assistant .text");
            if (texts.length < count || !/\\w{2}/.test(texts[count - 1].innerText)) return;
            seen.disconnect();
            ACTION;
        });
        seen.observe(document.body, { subtree: true, childList: true, characterData: true });
    }"""
    page.evaluate(script.replace("ACTION", action), count)


def stop(page, server):
    settle(page, server.url, max_tokens=2000)
    at_first_text(page, 1, 'document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }))')
    ask(page, "First Citizen:")
    text = answered(page)
    assert text.strip(), "what was there is kept"
    expect(page.locator(".stats").last).to_contain_text("stopped")
    expect(page.locator("#send")).to_be_visible()
    # The slot is free: another question is answered at once, and the stopped one goes on no more.
    slots = page.evaluate("async () => (await fetch('slots')).json()")
    for _ in range(100):
        if not any(slot["is_processing"] for slot in slots):
            break
        time.sleep(0.1)
        slots = page.evaluate("async () => (await fetch('slots')).json()")
    assert not any(slot["is_processing"] for slot in slots), slots
    # The button does the same. A reply may have ended by itself before it is pressed: then another one is asked for.
    for count, who in enumerate(["Second Citizen:", "MENENIUS:", "ROMEO:", "JULIET:", "KING RICHARD:"], 2):
        at_first_text(page, count, 'document.querySelector("#stop").click()')
        ask(page, who)
        answered(page, count)
        if "stopped" in page.locator(".stats").last.inner_text():
            return
    raise AssertionError("no reply was stopped by the button")


def edit(page, server):
    settle(page, server.url, max_tokens=8)
    ask(page, "ROMEO:")
    answered(page)
    page.click(".message.user >> text=Edit")
    page.fill(".edit textarea", "KING RICHARD:")
    page.press(".edit textarea", "Enter")
    answered(page)
    expect(page.locator(".message.user .text")).to_have_text("KING RICHARD:")
    expect(page.locator(".message.user .version")).to_have_text("2/2")
    page.click(".message.user >> [aria-label='Previous version']")
    expect(page.locator(".message.user .text")).to_have_text("ROMEO:")
    page.click("text=Regenerate")
    answered(page)
    expect(page.locator(".message.assistant .version")).to_have_text("2/2")
    # Cut at the limit: it goes on where it ended.
    before = page.locator(".message.assistant .text").inner_text()
    page.click("text=Continue")
    expect(page.locator(".message.assistant")).to_have_attribute("aria-busy", "false", timeout=WAIT)
    after = page.locator(".message.assistant .text").inner_text()
    assert after.startswith(before.rstrip()) and len(after) > len(before), (before, after)


def reload(page, server):
    settle(page, server.url, max_tokens=8)
    ask(page, "ROMEO:")
    text = answered(page)
    page.fill("#draft", "not sent yet")
    page.reload()
    expect(page.locator(".message.assistant .text")).to_have_text(text, timeout=WAIT, use_inner_text=True)
    assert page.input_value("#draft") == "not sent yet"
    page.click("#new-chat")
    expect(page.locator(".message")).to_have_count(0)
    ask(page, "JULIET:")
    answered(page)
    expect(page.locator("#chats .title")).to_have_count(2)
    page.fill("#search", "romeo")
    expect(page.locator("#chats .title")).to_have_count(1)
    page.click("#chats .title")
    expect(page.locator(".message.user .text")).to_have_text("ROMEO:")
    # Out as a file, and back in another browser.
    with page.expect_download() as exported:
        page.click("#export")
    file = exported.value.path()
    page.evaluate("localStorage.clear()")
    page.reload()
    page.set_input_files("#import", file)
    expect(page.locator("#chats .title").filter(has_text="JULIET:")).to_have_count(1)


def engine(page, server):
    """Live steps while another page's requests run; saved, and replayed."""
    settle(page, server.url, max_tokens=24)
    page.click("#tab-engine")
    expect(page.locator("#source")).to_contain_text("live", timeout=WAIT)
    page.evaluate("""async () => Promise.all(["ROMEO:", "JULIET:", "Now is the winter of our discontent"].map((prompt) =>
        fetch("completion", { method: "POST", headers: { "Content-Type": "application/json" },
            body: JSON.stringify({ prompt, n_predict: 24, temperature: 0 }) }).then((reply) => reply.json())))""")
    expect(page.locator("#summary")).to_contain_text("ms measured", timeout=WAIT)
    for name in ["lanes", "strip", "mask", "times", "queue"]:
        assert colours(page, name) > 2, f"`{name}` is empty"
    shot(page, "engine")
    with page.expect_download() as saved:
        page.click("#save")
    lines = pathlib.Path(saved.value.path()).read_text().splitlines()
    assert json.loads(lines[0])["type"] == "engine" and json.loads(lines[-1])["type"] == "tick"


def colours(page, name):
    """How many colours a canvas shows."""
    return page.evaluate("""(name) => {
        const canvas = document.getElementById(name);
        const data = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
        return new Set(data).size;
    }""", name)


def record(folder):
    """A recording of the program's own."""
    file = pathlib.Path(folder) / "steps.jsonl"
    server = Server("--record", str(file))
    body = json.dumps({"prompt": "Now is the winter of our discontent", "n_predict": 6, "temperature": 0})
    subprocess.run(["curl", "-sf", "-d", body, server.url + "completion"], check=True, stdout=subprocess.DEVNULL)
    server.end()
    return file


def replay(page, server):
    """A recording dropped on the page, with the server's events cut."""
    with tempfile.TemporaryDirectory() as folder:
        file = record(folder)
        n = len(file.read_text().splitlines()) - 1
        settle(page, server.url)
        page.route("**/engine/events*", lambda route: route.abort())
        page.click("#tab-engine")
        transfer = page.evaluate_handle(
            "(text) => { const all = new DataTransfer(); all.items.add(new File([text], 'steps.jsonl')); return all; }", file.read_text())
        page.dispatch_event("#engine", "drop", {"dataTransfer": transfer})
        expect(page.locator("#source")).to_contain_text(f"{n} steps of steps.jsonl")
        expect(page.locator("#summary")).to_contain_text("Step 1 ·")
        expect(page.locator("#summary")).to_contain_text("prompt 0–")
        page.click("#forward")
        expect(page.locator("#summary")).to_contain_text("Step 2 ·")
        page.locator("#summary").click()
        page.keyboard.press("End")
        expect(page.locator("#summary")).to_contain_text(f"Step {n} ·")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#summary")).to_contain_text(f"Step {n - 1} ·")
        page.keyboard.press("Home")
        page.click("#play")
        expect(page.locator("#summary")).to_contain_text(f"Step {n} ·", timeout=WAIT)
        assert colours(page, "mask") > 2
        # Something else is refused by its line, and what was there stays.
        bad = pathlib.Path(folder) / "bad.jsonl"
        bad.write_text('{"type":"tock"}\n{}\n')
        page.set_input_files("#recording", str(bad))
        expect(page.locator("#source")).to_contain_text("line 1 is no step")
        expect(page.locator("#summary")).to_contain_text(f"Step {n} ·")


def phone(page, server):
    page.set_viewport_size({"width": 360, "height": 740})
    settle(page, server.url, max_tokens=16)
    ask(page, "ROMEO:")
    answered(page)
    fits(page)
    shot(page, "phone-chat")
    expect(page.locator("#side")).to_be_hidden()
    page.click("#menu")
    expect(page.locator("#new-chat")).to_be_visible()
    page.click("#menu")
    page.click("#tab-engine")
    expect(page.locator("#source")).to_contain_text("live", timeout=WAIT)
    fits(page)
    shot(page, "phone-engine")
    page.click("#open-settings")
    expect(page.locator("#set-temperature")).to_be_visible()
    fits(page)


def fits(page):
    wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= room, f"the page is {wide} wide on a screen of {room}"


def dark(page, server):
    def background():
        rgb = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return int(re.search(r"\d+", rgb).group())

    settle(page, server.url)
    assert background() > 200
    page.emulate_media(color_scheme="dark")
    assert background() < 60
    page.click("#tab-engine")
    shot(page, "dark")
    # The choice goes before the system's.
    page.click("#open-settings")
    page.select_option("#set-theme", "light")
    assert background() > 200
    page.reload()
    assert background() > 200


def network(page, server):
    """No other machine is asked, and a server that is gone is said and does no harm."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    settle(page, server.url, max_tokens=4)
    ask(page, "ROMEO:")
    answered(page)
    assert asked and all(url.startswith((server.url, "data:", "blob:")) for url in asked), asked
    page.context.set_offline(True)
    ask(page, "JULIET:")
    expect(page.locator(".message .error")).to_contain_text("cannot be reached", timeout=WAIT)
    page.context.set_offline(False)
    page.click(".message.assistant:last-child >> text=Regenerate")
    expect(page.locator(".message.assistant").last).to_have_attribute("aria-busy", "false", timeout=WAIT)
    expect(page.locator(".message .error")).to_have_count(0)


def safe(page, server):
    """What a model says is text: no element, no script and no request comes of it."""
    settle(page, server.url)
    said = "<img src=x onerror=\"window.hit = 1\"> [go](javascript:window.hit=1) **bold** `code`\n\n```js\nlet a = '<b>';\n```\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    chunk = lambda **delta: "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) + "\n\n"
    end = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    call = {"index": 0, "id": "c", "function": {"name": "weather", "arguments": '{"city":"Verona"}'}}
    body = chunk(role="assistant", content=None) + chunk(reasoning_content="I *think*.") + chunk(content=said) + chunk(tool_calls=[call]) + end
    page.route("**/v1/chat/completions", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    ask(page, "x")
    answered(page)
    reply = page.locator(".message.assistant .text")
    assert reply.locator("img, a").count() == 0 and page.evaluate("window.hit") is None
    expect(reply.locator("strong")).to_have_text("bold")
    expect(reply.locator("pre code").first).to_have_text("let a = '<b>';")
    expect(reply.locator("li")).to_have_count(2)
    expect(reply.locator("td")).to_have_count(2)
    expect(reply.locator("details.reasoning")).not_to_have_attribute("open", "")
    expect(reply.locator("details.call")).to_contain_text("weather")
    # An error in the middle of a stream is shown below what came before.
    broken = chunk(content="half") + 'data: {"error":{"message":"the model failed","type":"server_error"}}\n\n'
    page.unroute("**/v1/chat/completions")
    page.route("**/v1/chat/completions", lambda route: route.fulfill(content_type="text/event-stream", body=broken))
    ask(page, "y")
    answered(page, 2)
    expect(page.locator(".error")).to_contain_text("the model failed")
    expect(page.locator(".message.assistant .text").last).to_contain_text("half")


def keys(page, server):
    """A server with a key: the page says so, and works once it has it. All by keyboard."""
    guarded = Server("--api-key", KEY)
    try:
        page.goto(guarded.url)
        expect(page.locator("#model")).to_contain_text("a key is needed", timeout=WAIT)
        page.focus("#open-settings")
        page.keyboard.press("Enter")
        page.focus("#set-key")
        page.keyboard.type(KEY)
        page.keyboard.press("Escape")
        expect(page.locator("#model")).to_contain_text("slots", timeout=WAIT)
        page.focus("#tab-chat")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#source")).to_contain_text("live", timeout=WAIT)
        expect(page.locator("#tab-engine")).to_be_focused()
    finally:
        guarded.end()


def models(page, server):
    """A server of a folder: the page asks the model that is chosen, also after a reload, and shows its steps."""
    expect(page.locator("#models")).to_be_hidden()
    with tempfile.TemporaryDirectory() as folder:
        for name in ["juliet", "romeo"]:
            subprocess.run([PROGRAM, "compile", str(ROOT / "models/demo"), "-o", f"{folder}/{name}"], check=True, capture_output=True)
        several = Server("--models", folder)
        try:
            settle(page, several.url, max_tokens=4)
            expect(page.locator("#models option")).to_have_text(["juliet", "romeo"])
            for name in ["romeo", "juliet"]:
                page.select_option("#models", name)
                expect(page.locator("#model")).to_contain_text(name, timeout=WAIT)
                with page.expect_request("**/v1/chat/completions") as asked:
                    ask(page, "ROMEO:")
                assert asked.value.post_data_json["model"] == name, asked.value.post_data
                expect(page.locator(".message.assistant").last).to_have_attribute("aria-busy", "false", timeout=WAIT)
            page.reload()
            expect(page.locator("#models")).to_have_value("juliet", timeout=WAIT)
            page.click("#tab-engine")
            expect(page.locator("#source")).to_contain_text("live", timeout=WAIT)
            with page.expect_request("**/engine/events?model=romeo*"):
                page.select_option("#models", "romeo")
            fits(page)
            # A model that is gone is chosen no more.
            page.evaluate("localStorage.setItem('genie.settings', JSON.stringify({ model: 'mercutio' }))")
            page.reload()
            expect(page.locator("#models")).to_have_value("romeo", timeout=WAIT)
        finally:
            several.end()


TESTS = [chat, stop, edit, reload, engine, replay, phone, dark, network, safe, keys, models]


def main():
    global SHOTS
    names = sys.argv[1:]
    if names[:1] == ["--shots"]:
        SHOTS, names = names[1], names[2:]
        pathlib.Path(SHOTS).mkdir(parents=True, exist_ok=True)
    unknown = set(names) - {test.__name__ for test in TESTS}
    if unknown:
        raise SystemExit(f"no such test: {', '.join(sorted(unknown))}")
    failed = []
    server = Server()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for test in TESTS:
                if names and test.__name__ not in names:
                    continue
                context = browser.new_context(viewport={"width": 1100, "height": 900})
                page = context.new_page()
                errors = []
                page.on("pageerror", lambda error: errors.append(str(error)))
                page.on("console", lambda line: errors.append(line.text) if "Content Security Policy" in line.text else None)
                began = time.monotonic()
                try:
                    test(page, server)
                    assert not errors, errors
                    print(f"ok      {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
                except Exception as error:
                    failed.append(test.__name__)
                    print(f"FAILED  {test.__name__}: {error}", flush=True)
                    if SHOTS:
                        page.screenshot(path=str(pathlib.Path(SHOTS) / f"failed-{test.__name__}.png"))
                context.close()
            browser.close()
    finally:
        server.end()
    if failed:
        raise SystemExit(f"{len(failed)} of the page's tests failed: {', '.join(failed)}")


main()
