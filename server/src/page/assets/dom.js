// Elements, made without any HTML text: what a model says is only ever a text node.

export const $ = (id) => document.getElementById(id);

/** Calls `act` at an event of the element of that id. */
export const on = (id, event, act) => $(id).addEventListener(event, act);

/** An element with properties (`on...` for events, `data-...` and `aria-...` as attributes) and children. */
export function h(tag, properties = {}, ...children) {
	const element = document.createElement(tag);
	for (const [name, value] of Object.entries(properties)) {
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (name.includes("-") || name === "role") element.setAttribute(name, value);
		else element[name] = value;
	}
	element.append(...children.filter((child) => child !== null && child !== undefined));
	return element;
}

/** What the browser keeps under a name; `null` for nothing, or nothing that can be read. */
export function stored(name) {
	try {
		return JSON.parse(localStorage.getItem(name));
	} catch {
		return null;
	}
}

/** Copies a text; where the clipboard is refused, a selection does. */
export async function copy(text, button) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		const area = h("textarea", { value: text });
		document.body.append(area);
		area.select();
		document.execCommand("copy");
		area.remove();
	}
	const before = button.textContent;
	button.textContent = "Copied";
	setTimeout(() => { button.textContent = before; }, 1200);
}

/** Hands a text to the user as a file. */
export function download(name, text, type) {
	const url = URL.createObjectURL(new Blob([text], { type }));
	h("a", { href: url, download: name }).click();
	setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Files chosen by button or key: a label with a hidden input. */
export function onFile(input, take) {
	input.addEventListener("change", () => {
		if (input.files[0]) take(input.files[0]);
		input.value = "";
	});
	input.parentElement.addEventListener("keydown", (event) => {
		if (event.key === "Enter" || event.key === " ") { event.preventDefault(); input.click(); }
	});
}
