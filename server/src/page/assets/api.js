// Calls of the server that this page came from. Addresses are relative, so that a proxy may put the page below a folder.

import { settings } from "./settings.js";

/** What a call failed with, in words for the reader. */
export class ApiError extends Error {
	constructor(message, status = 0) {
		super(message);
		this.status = status;
	}
}

async function call(path, init = {}) {
	const headers = { ...init.headers };
	if (settings.key) headers.Authorization = `Bearer ${settings.key}`;
	let response;
	try {
		response = await fetch(path, { ...init, headers });
	} catch (error) {
		if (error.name === "AbortError") throw error;
		throw new ApiError("The server cannot be reached. Is `genie serve` still running?");
	}
	if (!response.ok) throw await failure(response);
	return response;
}

async function failure(response) {
	let message = `The server answered with status ${response.status}`;
	try {
		message = (await response.json()).error.message;
	} catch { /* no JSON: the status has to do */ }
	if (response.status === 401) message += " Set the key under Settings.";
	if (response.status === 429) message += " Try again in a moment.";
	return new ApiError(message, response.status);
}

/** The path with the chosen model's name. */
export const ofModel = (path) => (settings.model ? `${path}?model=${encodeURIComponent(settings.model)}` : path);

export const get = async (path) => (await call(path)).json();

/** Gives each `data:` of a stream of events to `take`, as JSON. Ends with the stream. */
export async function events(path, init, take) {
	const response = await call(path, init);
	const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	for (;;) {
		let part;
		try {
			part = await reader.read();
		} catch (error) {
			if (error.name === "AbortError") throw error;
			throw new ApiError("The connection was lost.");
		}
		if (part.done) return;
		const parts = (rest + part.value).split("\n\n");
		rest = parts.pop();
		for (const event of parts) {
			const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
			if (data === "[DONE]") return;
			if (!data) continue;
			const value = JSON.parse(data);
			if (value.error) throw new ApiError(value.error.message ?? String(value.error));
			take(value);
		}
	}
}

/** Posts an object, and returns the answer. */
export const post = async (path, body, signal) => (await call(path, posted(body, signal))).json();

const posted = (body, signal) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

/** Posts an object, and gives each event of the answer to `take`. */
export const stream = (path, body, signal, take) => events(path, posted({ ...body, stream: true }, signal), take);

/** Streams a chat completion. */
export const complete = (body, signal, take) =>
	stream("v1/chat/completions", { ...body, stream_options: { include_usage: true } }, signal, take);
