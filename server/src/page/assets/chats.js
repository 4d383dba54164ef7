// Chats in the browser's storage. A chat is a tree of messages: an edit or another try is a branch beside the old one.

import { stored } from "./dom.js";

const LIST = "genie.chats";
const CURRENT = "genie.current";
const DRAFT = "genie.draft.";

const id = () => Math.random().toString(36).slice(2, 10) + Date.now().toString(36);
let chats = stored(LIST) ?? [];
let current = localStorage.getItem(CURRENT);

/** Writes all chats down. `false` where the browser has no room for them. */
export function save() {
	try {
		// Chats that nothing was said in need not be kept.
		localStorage.setItem(LIST, JSON.stringify(chats.filter((chat) => Object.keys(chat.messages).length)));
		localStorage.setItem(CURRENT, current ?? "");
		return true;
	} catch {
		return false;
	}
}

export function open() {
	let chat = chats.find((known) => known.id === current);
	if (!chat) {
		chat = chats[0] ?? create();
		current = chat.id;
	}
	return chat;
}

export function create() {
	const empty = chats.find((chat) => !Object.keys(chat.messages).length);
	const chat = empty ?? { id: id(), title: "", at: Date.now(), leaf: null, messages: {} };
	if (!empty) chats.unshift(chat);
	current = chat.id;
	return chat;
}

export function choose(chosen) {
	current = chosen;
	save();
}

export function remove(gone) {
	chats = chats.filter((chat) => chat.id !== gone);
	localStorage.removeItem(DRAFT + gone);
	save();
}

export function rename(chat, title) {
	chat.title = title;
	save();
}

export const title = (chat) => chat.title || Object.values(chat.messages)[0]?.content.slice(0, 60) || "New chat";

export const all = () => chats;

/** The chats in whose title or messages the words stand. */
export function search(words) {
	const wanted = words.toLowerCase();
	const has = (text) => text.toLowerCase().includes(wanted);
	return chats.filter((chat) => has(title(chat)) || Object.values(chat.messages).some((message) => has(message.content)));
}

/** A message behind `parent`, which becomes the end of what is shown. */
export function add(chat, parent, message) {
	const added = { id: id(), parent, content: "", ...message };
	chat.messages[added.id] = added;
	chat.leaf = added.id;
	chat.at = Date.now();
	return added;
}

/** The messages from the first to the one that is shown last. */
export function path(chat) {
	const messages = [];
	for (let at = chat.messages[chat.leaf]; at; at = chat.messages[at.parent]) messages.unshift(at);
	return messages;
}

/** Messages in the same place, this one among them. */
export const siblings = (chat, message) => Object.values(chat.messages).filter((other) => other.parent === message.parent);

/** Shows another branch, down to its newest end. */
export function show(chat, message) {
	let at = message;
	for (let next = at; next; next = Object.values(chat.messages).filter((other) => other.parent === at.id).at(-1)) at = next;
	chat.leaf = at.id;
	save();
}

/** Removes a message with all that follows it. */
export function cut(chat, message) {
	const gone = [message.id];
	while (gone.length) {
		const one = gone.pop();
		gone.push(...Object.values(chat.messages).filter((other) => other.parent === one).map((other) => other.id));
		delete chat.messages[one];
	}
	const left = siblings(chat, message).at(-1);
	if (left) show(chat, left);
	else chat.leaf = message.parent;
	save();
}

export const draft = (chat) => localStorage.getItem(DRAFT + chat.id) ?? "";

export function keepDraft(chat, text) {
	try {
		if (text) localStorage.setItem(DRAFT + chat.id, text);
		else localStorage.removeItem(DRAFT + chat.id);
	} catch { /* no room: a draft is no loss */ }
}

export const exported = () => JSON.stringify({ version: 1, chats }, null, 1);

/** Adds the chats of an exported file; returns how many. */
export function imported(text) {
	const { version, chats: found } = JSON.parse(text);
	const good = (chat) => chat && typeof chat.id === "string" && chat.messages && Object.values(chat.messages).every((message) =>
		typeof message?.content === "string" && ["user", "assistant"].includes(message.role));
	if (version !== 1 || !Array.isArray(found) || !found.every(good)) throw new Error("This is not a file of exported chats.");
	const known = new Set(chats.map((chat) => chat.id));
	const added = found.filter((chat) => !known.has(chat.id));
	chats.push(...added);
	save();
	return added.length;
}
