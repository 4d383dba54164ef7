// The engine view: steps as they come from the server, or from a recording, and which of them is looked at.

import { events, ofModel } from "./api.js";
import { $, download, on, onFile } from "./dom.js";
import { draw, tickAt } from "./panels.js";

const MOST_LIVE = 3000;
const MOST_FILE = 200000;

const state = { engine: null, ticks: [], at: -1, live: true, file: null, lost: 0 };
let visible = false;
let connection = null;
let player = null;
let frame = 0;

const say = (text) => { $("source").textContent = text; };

function redraw() {
	frame ||= requestAnimationFrame(() => {
		frame = 0;
		if (!visible) return;
		const n = state.ticks.length;
		$("position").max = Math.max(n - 1, 0);
		$("position").value = Math.max(state.at, 0);
		$("summary").textContent = summary();
		draw(state);
	});
}

const ms = (us) => (us / 1000).toFixed(us < 10000 ? 2 : 1);

function summary() {
	const tick = state.ticks[state.at];
	if (!tick) {
		const { engine } = state;
		return engine ? `No step yet. ${engine.rows_used} of ${engine.rows_total} rows of the cache are in use. Ask something in the chat.` : "No step yet.";
	}
	const rows = tick.rows.map(({ slot, kind, from, n }) => `slot ${slot} ${kind === "prefill" ? "prompt" : "reply"} ${from}${n > 1 ? `–${from + n - 1}` : ""}`);
	return `Step ${tick.tick} · ${tick.graphs.join(", ")} · width ${tick.width}: ${rows.join(", ")}; ${tick.padding} padding · ` +
		`${ms(tick.us)} ms measured, ${state.engine?.predicted_by === "assumed" ? "none" : `${ms(tick.us_predicted)} ms`} predicted · ${tick.queue} waiting · ${tick.rows_used} of ${tick.rows_total} rows in use` +
		(tick.dropped ? ` · ${tick.dropped} steps not seen` : "");
}

function push(event) {
	if (event.type === "engine") {
		// Another server, or the same one started again: its numbers begin again.
		if (state.ticks.length && event.ticks < state.ticks.at(-1).tick) state.ticks = [];
		state.engine = event;
		state.at = state.ticks.length - 1;
	} else if (event.type === "tick") {
		state.ticks.push(event);
		if (state.ticks.length > MOST_LIVE) {
			state.ticks.shift();
			if (!state.live) state.at = Math.max(state.at - 1, 0);
		}
		if (state.live) state.at = state.ticks.length - 1;
	}
	redraw();
}

async function connect() {
	if (connection || state.file || !visible) return;
	const abort = new AbortController();
	connection = abort;
	say("connecting");
	try {
		await events(ofModel("engine/events"), { signal: abort.signal }, (event) => { say("live from the server"); push(event); });
		say("the server has ended the stream");
	} catch (error) {
		if (error.name === "AbortError") return;
		say(error.message);
	}
	if (connection !== abort) return;
	connection = null;
	setTimeout(connect, 2000);
}

function disconnect() {
	connection?.abort();
	connection = null;
}

function setLive(live) {
	state.live = live;
	$("live").setAttribute("aria-pressed", live);
}

/** Looks at one step; coming steps no longer move the view. */
function look(at) {
	if (!state.ticks.length) return;
	setLive(false);
	state.at = Math.min(Math.max(at, 0), state.ticks.length - 1);
	redraw();
}

function play(on) {
	clearInterval(player);
	player = null;
	$("play").setAttribute("aria-pressed", on);
	$("play").textContent = on ? "Pause" : "Play";
	if (!on) return;
	if (state.at >= state.ticks.length - 1) state.at = -1;
	player = setInterval(() => {
		look(state.at + 1);
		if (state.at >= state.ticks.length - 1) play(false);
	}, 120);
}

function jump(at) {
	play(false);
	look(at);
}

/** Reads a recording: a JSON object a line, as `--record` and the Save button write them. */
export function parse(text) {
	const found = { engine: null, ticks: [] };
	const lines = text.split("\n");
	lines.forEach((line, index) => {
		if (!line.trim() || found.ticks.length >= MOST_FILE) return;
		let value;
		try {
			value = JSON.parse(line);
		} catch {
			// The last line of a server that was killed may be cut.
			if (index >= lines.length - 1) return;
			throw new Error(`line ${index + 1} is no JSON`);
		}
		if (value?.type === "engine") {
			if (value.version !== 1) throw new Error(`line ${index + 1}: this page reads version 1, found ${value.version}`);
			found.engine ??= value;
		} else if (value?.type === "tick" && Array.isArray(value.rows) && Array.isArray(value.slots) && Array.isArray(value.cells)) found.ticks.push(value);
		else throw new Error(`line ${index + 1} is no step`);
	});
	if (!found.ticks.length) throw new Error("no step is in it");
	return found;
}

async function replay(file) {
	try {
		const found = parse(await file.text());
		disconnect();
		play(false);
		Object.assign(state, found, { file: file.name, at: 0 });
		setLive(false);
		say(`${found.ticks.length} steps of ${file.name}`);
		redraw();
	} catch (error) {
		say(`${file.name} cannot be replayed: ${error.message}`);
	}
}

const forget = () => Object.assign(state, { engine: null, ticks: [], at: -1, file: null });

/** The steps of another model. */
export function restart() {
	disconnect();
	forget();
	goLive();
}

function goLive() {
	play(false);
	if (state.file) forget();
	setLive(true);
	state.at = state.ticks.length - 1;
	connect();
	redraw();
}

/** Whether the view is on the screen: steps are only asked for while it is. */
export function shown(now) {
	visible = now;
	if (now) connect();
	else { disconnect(); play(false); }
	redraw();
}

export function start() {
	on("live", "click", goLive);
	on("back", "click", () => jump(state.at - 1));
	on("forward", "click", () => jump(state.at + 1));
	on("play", "click", () => play(!player));
	on("position", "input", () => jump($("position").valueAsNumber));
	on("save", "click", () => {
		const lines = [state.engine, ...state.ticks].filter(Boolean).map((object) => JSON.stringify(object));
		download("genie-steps.jsonl", `${lines.join("\n")}\n`, "application/jsonl");
	});
	onFile($("recording"), replay);
	for (const name of ["lanes", "times", "queue"]) {
		on(name, "click", (event) => {
			const at = tickAt($(name), event.offsetX);
			if (at !== null) jump(at);
		});
	}
	const panel = $("engine");
	for (const kind of ["dragenter", "dragover"]) panel.addEventListener(kind, (event) => { event.preventDefault(); panel.classList.add("over"); });
	panel.addEventListener("dragleave", () => panel.classList.remove("over"));
	panel.addEventListener("drop", (event) => {
		event.preventDefault();
		panel.classList.remove("over");
		if (event.dataTransfer.files[0]) replay(event.dataTransfer.files[0]);
	});
	document.addEventListener("keydown", (event) => {
		if (!visible || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [role=tab]")) return;
		if (event.key === "ArrowLeft") jump(state.at - 1);
		else if (event.key === "ArrowRight") jump(state.at + 1);
		else if (event.key === "Home") look(0);
		else if (event.key === "End") look(state.ticks.length - 1);
		else if (event.key === " " && !event.target.closest("button")) play(!player);
		else return;
		event.preventDefault();
	});
	new ResizeObserver(redraw).observe(panel);
	window.addEventListener("theme", redraw);
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
