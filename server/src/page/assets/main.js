// The page's frame: two views, the list of chats, the model's name.

import { get } from "./api.js";
import * as chat from "./chat.js";
import * as chats from "./chats.js";
import { $, download, h, on, onFile } from "./dom.js";
import * as engine from "./engine.js";
import * as settings from "./settings.js";

const VIEWS = ["chat", "engine"];

function view(name) {
	for (const one of VIEWS) {
		const selected = one === name;
		$(one).hidden = !selected;
		$(`tab-${one}`).setAttribute("aria-selected", selected);
		$(`tab-${one}`).tabIndex = selected ? 0 : -1;
	}
	history.replaceState(null, "", name === "chat" ? location.pathname : `#${name}`);
	engine.shown(name === "engine");
	drawer(false);
}

function drawer(open) {
	$("side").classList.toggle("open", open);
	$("menu").setAttribute("aria-expanded", open);
}

function list() {
	const open = chats.open();
	const words = $("search").value.trim();
	const rows = (words ? chats.search(words) : chats.all()).map((one) => {
		const name = chats.title(one);
		const choose = () => { chat.stop(); chats.choose(one.id); chat.show(); view("chat"); list(); };
		const rename = () => {
			const input = h("input", { value: name, "aria-label": "Name of the chat" });
			let done = false;
			const end = (keep) => {
				if (done) return;
				done = true;
				if (keep && input.value.trim()) chats.rename(one, input.value.trim());
				list();
			};
			input.addEventListener("keydown", (event) => {
				if (event.key === "Enter") end(true);
				if (event.key === "Escape") { event.stopPropagation(); end(false); }
			});
			input.addEventListener("blur", () => end(true));
			row.replaceChildren(input);
			input.focus();
			input.select();
		};
		const remove = () => {
			if (!confirm(`Delete "${name}"?`)) return;
			chat.stop();
			chats.remove(one.id);
			chat.show();
			list();
		};
		const row = h("li", {},
			h("button", { className: "title", "aria-current": one === open, onclick: choose }, name),
			h("button", { className: "small", "aria-label": `Rename ${name}`, title: "Rename", onclick: rename }, "✎"),
			h("button", { className: "small", "aria-label": `Delete ${name}`, title: "Delete", onclick: remove }, "✕"));
		return row;
	});
	$("chats").replaceChildren(...rows);
}

async function model() {
	try {
		const names = (await get("v1/models")).data.map(({ id }) => id);
		if (!names.includes(settings.settings.model)) settings.useModel();
		$("models").hidden = names.length < 2;
		$("models").replaceChildren(...names.map((name) => h("option", {}, name)));
		const props = await chat.limits();
		settings.showDefaults(props.default_generation_settings.params);
		$("model").textContent = `${props.model_alias} · ${props.default_generation_settings.n_ctx} tokens · ${props.total_slots} slots`;
		$("models").value = props.model_alias;
		if (names.length > 1) settings.useModel(props.model_alias);
		document.title = `${props.model_alias} · genie`;
	} catch (error) {
		$("model").textContent = error.status === 401 ? "a key is needed: Settings" : error.message;
	}
}

settings.start(model);
chat.start(list);
engine.start();
list();
model();
for (const name of VIEWS) {
	on(`tab-${name}`, "click", () => view(name));
	on(`tab-${name}`, "keydown", (event) => {
		if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
		const other = VIEWS[1 - VIEWS.indexOf(name)];
		view(other);
		$(`tab-${other}`).focus();
	});
}
on("models", "change", async () => { settings.useModel($("models").value); await model(); engine.restart(); });
on("menu", "click", () => drawer(!$("side").classList.contains("open")));
on("search", "input", list);
on("new-chat", "click", () => { chat.stop(); chats.create(); chat.show(); list(); view("chat"); $("draft").focus(); });
on("export", "click", () => download("genie-chats.json", chats.exported(), "application/json"));
onFile($("import"), async (file) => {
	try {
		const n = chats.imported(await file.text());
		$("status").textContent = `${n} chats were added.`;
		list();
	} catch (error) {
		$("status").textContent = `The file cannot be imported: ${error.message}`;
	}
});
view(location.hash === "#engine" ? "engine" : "chat");
