// The conversation: shown, sent, streamed, stopped, edited, tried again.

import { complete, get, ofModel, post, stream } from "./api.js";
import * as chats from "./chats.js";
import { $, copy, h, on } from "./dom.js";
import { render } from "./markdown.js";
import { chosen, settings } from "./settings.js";

let running = null;
let contextSize = 0;
let changed = () => {};

const status = (text) => { $("status").textContent = text; };

function keep() {
	if (!chats.save()) status("The browser has no room left: this chat is not stored. Export it, or delete others.");
}

/** The whole conversation from its chat. */
export function show() {
	const chat = chats.open();
	$("messages").replaceChildren(...chats.path(chat).map((message) => view(chat, message)));
	$("draft").value = chats.draft(chat);
	fit($("draft"));
	gauge(chat);
	scroll(true);
}

function gauge(chat) {
	const last = chats.path(chat).findLast((message) => message.used);
	$("context").hidden = !contextSize;
	$("gauge").max = contextSize || 1;
	$("gauge").value = last?.used ?? 0;
	$("gauge-text").textContent = `${last?.used ?? 0} of ${contextSize} tokens`;
}

function scroll(always) {
	const box = $("messages");
	if (always || box.scrollHeight - box.scrollTop - box.clientHeight < 120) box.scrollTop = box.scrollHeight;
}

function fit(area) {
	area.style.height = "auto";
	area.style.height = `${area.scrollHeight + 2}px`;
}

function text(message) {
	const parts = [];
	if (message.reasoning) {
		parts.push(h("details", { className: "reasoning", open: Boolean(settings.reasoning) }, h("summary", {}, "Reasoning"), ...render(message.reasoning)));
	}
	parts.push(...render(message.content));
	for (const call of message.calls ?? []) {
		parts.push(h("details", { className: "call", open: true }, h("summary", {}, `Call of ${call.name}`), h("pre", {}, call.arguments)));
	}
	if (message.error) parts.push(h("p", { className: "error", role: "alert" }, message.error));
	return parts;
}

function view(chat, message) {
	const busy = running?.message === message;
	const mine = message.role === "user";
	const body = h("div", { className: busy ? "text busy" : "text" }, ...text(message));
	const element = h("article", { className: `message ${message.role}`, "data-id": message.id, "aria-busy": busy, "aria-label": mine ? "You" : "Model" },
		h("div", { className: "who" }, mine ? "You" : "Model"), body);
	if (!busy) element.append(tools(chat, message, element));
	return element;
}

function tools(chat, message, element) {
	const button = (label, act) => h("button", { type: "button", onclick: act }, label);
	const bar = h("div", { className: "tools" });
	const copying = button("Copy", () => copy(message.content, copying));
	bar.append(copying);
	if (message.role === "user") bar.append(button("Edit", () => edit(chat, message, element)));
	else {
		bar.append(button("Regenerate", () => reply(chat, message.parent)));
		if (message.id === chat.leaf && message.content && !message.reasoning && !message.calls?.length && message.finish !== "stop") {
			bar.append(button("Continue", () => goOn(chat, message)));
		}
	}
	bar.append(button("Delete", () => { stop(); chats.cut(chat, message); show(); changed(); }));
	const others = chats.siblings(chat, message);
	if (others.length > 1) {
		const at = others.indexOf(message);
		const turn = (to, label, sign) => h("button", { type: "button", "aria-label": label, disabled: !others[to], onclick: () => { stop(); chats.show(chat, others[to]); show(); } }, sign);
		bar.append(turn(at - 1, "Previous version", "‹"), h("span", { className: "version" }, `${at + 1}/${others.length}`), turn(at + 1, "Next version", "›"));
	}
	if (message.stats) bar.append(h("span", { className: "stats" }, message.stats));
	return bar;
}

function edit(chat, message, element) {
	const area = h("textarea", { value: message.content, "aria-label": "Edit the message", oninput: () => fit(area) });
	const done = () => show();
	const submit = () => {
		const content = area.value.trim();
		if (!content) return;
		stop();
		// A branch beside the old one: nothing that was said is lost.
		reply(chat, chats.add(chat, message.parent, { role: "user", content }).id);
	};
	area.addEventListener("keydown", (event) => {
		if (event.key === "Escape") { event.stopPropagation(); done(); }
		if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); submit(); }
	});
	const form = h("form", { className: "edit", onsubmit: (event) => { event.preventDefault(); submit(); } }, area,
		h("div", { className: "row" }, h("button", { type: "submit" }, "Send"), h("button", { type: "button", onclick: done }, "Cancel")));
	element.replaceChildren(form);
	area.focus();
	fit(area);
}

/** What the model is given: no empty replies, and no two messages of the user behind each other. */
function history(chat) {
	const messages = settings.system ? [{ role: "system", content: settings.system }] : [];
	for (const { role, content } of chats.path(chat)) {
		const last = messages.at(-1);
		if (role === "user" && last?.role === "user") last.content += `\n\n${content}`;
		else if (content) messages.push({ role, content });
	}
	return messages;
}

function reply(chat, parent) {
	stop();
	chat.leaf = parent;
	const messages = history(chat);
	const message = chats.add(chat, parent, { role: "assistant" });
	return run(chat, message, (signal, times) => complete({ messages, ...chosen() }, signal, (chunk) => take(message, chunk, times)));
}

function take(message, chunk, times) {
	const choice = chunk.choices?.[0];
	const delta = choice?.delta ?? {};
	if (delta.content || delta.reasoning_content || delta.tool_calls) times.first ??= performance.now();
	if (delta.content) message.content += delta.content;
	if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
	for (const call of delta.tool_calls ?? []) {
		message.calls ??= [];
		const known = (message.calls[call.index] ??= { name: "", arguments: "" });
		known.name += call.function?.name ?? "";
		known.arguments += call.function?.arguments ?? "";
	}
	if (choice?.finish_reason) message.finish = choice.finish_reason;
	if (chunk.usage) times.usage = chunk.usage;
}

/** A reply that was cut off goes on: its prompt is that of the conversation with what there is of the reply. */
function goOn(chat, message) {
	const messages = history(chat).slice(0, -1);
	return run(chat, message, async (signal, times) => {
		const { prompt } = await post("apply-template", { messages, model: settings.model }, signal);
		await stream("completion", { prompt: prompt + message.content, ...chosen() }, signal, (piece) => {
			if (piece.content) times.first ??= performance.now();
			message.content += piece.content ?? "";
			if (piece.stop) message.finish = piece.stop_type === "limit" ? "length" : "stop";
		});
	});
}

async function run(chat, message, ask) {
	const abort = new AbortController();
	const times = { began: performance.now() };
	const mine = { chat, message, abort };
	running = mine;
	for (const name of ["error", "finish", "stats"]) delete message[name];
	buttons();
	status("");
	show();
	keep();
	changed();
	const tick = setInterval(() => refresh(mine), 60);
	const store = setInterval(keep, 1000);
	try {
		await ask(abort.signal, times);
		if (!message.finish) message.error = "The reply ended early: the connection was closed.";
	} catch (error) {
		if (error.name === "AbortError") message.finish = "stopped";
		else message.error = error.message;
	}
	clearInterval(tick);
	clearInterval(store);
	finish(message, times);
	if (running === mine) running = null;
	buttons();
	keep();
	changed();
	if (chats.open() === chat && !document.querySelector(".edit")) {
		const old = element(message);
		old?.replaceWith(view(chat, message));
		gauge(chat);
		scroll(false);
	}
	status(message.error ? "The reply failed." : message.finish === "stopped" ? "Stopped." : "The reply is complete.");
}

function finish(message, { began, first, usage }) {
	const now = performance.now();
	const parts = [];
	if (first) parts.push(`first token ${Math.round(first - began)} ms`);
	if (usage) {
		message.used = usage.total_tokens;
		const n = usage.completion_tokens;
		if (n > 1) parts.push(`${((n - 1) / Math.max(now - first, 1) * 1000).toFixed(1)} tokens/s`);
		const cached = usage.prompt_tokens_details?.cached_tokens;
		parts.push(`${usage.prompt_tokens} + ${n} tokens${cached ? `, ${cached} cached` : ""}`);
	}
	if (message.finish === "length") parts.push("cut at the token limit");
	if (message.finish === "stopped") parts.push("stopped");
	message.stats = parts.join(" · ");
}

const element = (message) => document.querySelector(`[data-id="${CSS.escape(message.id)}"]`);

function refresh({ message }) {
	const body = element(message)?.querySelector(".text");
	if (!body) return;
	const shown = JSON.stringify([message.content, message.reasoning, message.calls]);
	if (body.shown === shown) return;
	body.shown = shown;
	// A fold that the reader has opened stays open.
	const unfolded = body.querySelector(".reasoning")?.open;
	body.replaceChildren(...text(message));
	if (unfolded !== undefined && body.querySelector(".reasoning")) body.querySelector(".reasoning").open = unfolded;
	scroll(false);
}

function buttons() {
	$("send").hidden = Boolean(running);
	$("stop").hidden = !running;
}

/** Ends the reply in the making; what there is of it stays. */
export function stop() {
	running?.abort.abort();
}

function send() {
	const content = $("draft").value.trim();
	if (!content || running) return;
	const chat = chats.open();
	$("draft").value = "";
	chats.keepDraft(chat, "");
	reply(chat, chats.add(chat, chat.leaf, { role: "user", content }).id);
}

export async function start(onChange) {
	changed = onChange;
	const draft = $("draft");
	on("composer", "submit", (event) => { event.preventDefault(); send(); });
	on("stop", "click", stop);
	draft.addEventListener("input", () => { fit(draft); chats.keepDraft(chats.open(), draft.value); });
	draft.addEventListener("keydown", (event) => {
		if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
	});
	document.addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
	show();
}

/** The server's limits, once they are known. */
export async function limits() {
	const props = await get(ofModel("props"));
	contextSize = props.default_generation_settings.n_ctx;
	gauge(chats.open());
	return props;
}
