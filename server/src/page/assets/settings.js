// What the user chose; an empty field is the server's own value, which is shown in it.

import { $, h } from "./dom.js";

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
const NAME = "genie.settings";

export const settings = read();

function read() {
	try {
		return JSON.parse(localStorage.getItem(NAME)) ?? {};
	} catch {
		return {};
	}
}

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

/** The sampling part of a request: only what was chosen. */
export function chosen() {
	const numbers = FIELDS.filter((field) => field.kind === "number").map(({ name }) => [name, settings[name]]);
	return Object.fromEntries(numbers.filter(([, value]) => Number.isFinite(value)));
}

function input(field) {
	const { name, kind } = field;
	const value = settings[name];
	const store = (next) => {
		if (next === "" || next === false || Number.isNaN(next)) delete settings[name];
		else settings[name] = next;
		keep();
	};
	if (kind === "select") {
		const options = field.options.map((option) => h("option", { value: option, selected: option === value }, option));
		return h("select", { id: `set-${name}`, onchange: (event) => store(event.target.value) }, ...options);
	}
	if (kind === "checkbox") return h("input", { id: `set-${name}`, type: kind, checked: Boolean(value), onchange: (event) => store(event.target.checked) });
	if (kind === "textarea") return h("textarea", { id: `set-${name}`, rows: 3, value: value ?? "", oninput: (event) => store(event.target.value) });
	const number = kind === "number";
	return h("input", {
		id: `set-${name}`, type: kind, min: field.min ?? "", max: field.max ?? "", step: field.step ?? "", value: value ?? "", autocomplete: "off",
		oninput: (event) => store(number ? event.target.valueAsNumber : event.target.value),
	});
}

/** The server's own values, as they come from `/props`. */
export function showDefaults(params) {
	for (const { name, of, kind } of FIELDS) {
		const value = params[of ?? name];
		if (kind === "number" && value !== undefined && value !== null) {
			$(`set-${name}`).placeholder = value < 0 ? "as the server likes" : String(Math.round(value * 1e4) / 1e4);
		}
	}
}

function fill() {
	$("fields").replaceChildren(...FIELDS.map((field) => h("label", {}, field.label, input(field))));
}

export function start(onClose) {
	applyTheme();
	fill();
	$("open-settings").addEventListener("click", () => $("settings").showModal());
	$("settings").addEventListener("close", onClose);
	$("reset-settings").addEventListener("click", () => {
		for (const { name, kind } of FIELDS) if (kind === "number") delete settings[name];
		keep();
		fill();
		onClose();
	});
}
