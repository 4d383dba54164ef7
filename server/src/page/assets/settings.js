// What the user chose; an empty field is the server's own value, which is shown in it.

import { $, h, on, stored } from "./dom.js";

const FIELDS = [
	{ name: "system", label: "System prompt", kind: "textarea" },
	{ name: "temperature", label: "Temperature", kind: "number", min: 0, max: 2, step: 0.05 },
	{ name: "top_p", label: "Top p", kind: "number", min: 0, max: 1, step: 0.01 },
	{ name: "top_k", label: "Top k", kind: "number", min: 0, step: 1 },
	{ name: "min_p", label: "Min p", kind: "number", min: 0, max: 1, step: 0.01 },
	{ name: "max_tokens", label: "Longest reply, in tokens", kind: "number", min: 1, step: 1, of: "n_predict" },
	{ name: "seed", label: "Seed", kind: "number", min: 0, step: 1 },
	{ name: "reasoning", label: "Show reasoning unfolded", kind: "checkbox" },
	{ name: "theme", label: "Colours", kind: "select", options: ["system", "light", "dark"] },
	{ name: "key", label: "API key", kind: "password" },
];
const NUMBERS = FIELDS.filter(({ kind }) => kind === "number");
const NAME = "genie.settings";

export const settings = stored(NAME) ?? {};

function keep() {
	try {
		localStorage.setItem(NAME, JSON.stringify(settings));
	} catch { /* a browser that stores nothing: the choice holds until reload */ }
	applyTheme();
}

function applyTheme() {
	const { theme } = settings;
	if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
	else delete document.documentElement.dataset.theme;
	window.dispatchEvent(new Event("theme"));
}

/** The model that is asked from now on. */
export function useModel(name) {
	if (settings.model === name) return;
	settings.model = name;
	keep();
}

/** Sampling and model of a request: only what was chosen. */
export function chosen() {
	const found = { model: settings.model };
	for (const { name } of NUMBERS) if (Number.isFinite(settings[name])) found[name] = settings[name];
	return found;
}

function input({ name, kind, min = "", max = "", step = "", options }) {
	const id = `set-${name}`;
	const value = settings[name] ?? "";
	const store = (next) => {
		if (next === "" || next === false || Number.isNaN(next)) delete settings[name];
		else settings[name] = next;
		keep();
	};
	const typed = ({ target }) => store(kind === "number" ? target.valueAsNumber : target.value);
	if (kind === "select") return h("select", { id, onchange: typed }, ...options.map((option) => h("option", { selected: option === value }, option)));
	if (kind === "checkbox") return h("input", { id, type: kind, checked: Boolean(value), onchange: ({ target }) => store(target.checked) });
	if (kind === "textarea") return h("textarea", { id, rows: 3, value, oninput: typed });
	return h("input", { id, type: kind, min, max, step, value, autocomplete: "off", oninput: typed });
}

/** The server's own values, as they come from `/props`. */
export function showDefaults(params) {
	for (const { name, of = name } of NUMBERS) {
		const value = params[of];
		if (value != null) $(`set-${name}`).placeholder = value < 0 ? "as the server likes" : Math.round(value * 1e4) / 1e4;
	}
}

function fill() {
	$("fields").replaceChildren(...FIELDS.map((field) => h("label", {}, field.label, input(field))));
}

export function start(onClose) {
	applyTheme();
	fill();
	on("open-settings", "click", () => $("settings").showModal());
	on("settings", "close", onClose);
	on("reset-settings", "click", () => {
		for (const { name } of NUMBERS) delete settings[name];
		keep();
		fill();
		onClose();
	});
}
