// A small Markdown to elements: code blocks, headings, lists, quotes, tables, emphasis, links. No HTML is ever parsed.

import { copy, h } from "./dom.js";

const INLINE = /(`+)([\s\S]+?)\1(?!`)|\*\*([^\s*](?:[\s\S]*?[^\s*])?)\*\*|\*([^\s*](?:[^*]*?[^\s*])?)\*|\[([^\]\n]+)\]\(([^()\s]+)\)/;

/** Text with emphasis, as nodes. */
function inline(text) {
	const nodes = [];
	let rest = text;
	while (rest) {
		const found = INLINE.exec(rest);
		if (!found) break;
		if (found.index) nodes.push(rest.slice(0, found.index));
		const [whole, , code, bold, italic, label, target] = found;
		if (code !== undefined) nodes.push(h("code", {}, code.trim()));
		else if (bold !== undefined) nodes.push(h("strong", {}, ...inline(bold)));
		else if (italic !== undefined) nodes.push(h("em", {}, ...inline(italic)));
		// Other schemes could run scripts.
		else if (/^https?:\/\/|^mailto:/i.test(target)) nodes.push(h("a", { href: target, rel: "noopener noreferrer", target: "_blank" }, ...inline(label)));
		else nodes.push(whole);
		rest = rest.slice(found.index + whole.length);
	}
	if (rest) nodes.push(rest);
	return nodes;
}

function code(lines, language) {
	const text = lines.join("\n");
	const button = h("button", { type: "button", onclick: () => copy(text, button) }, "Copy");
	const inner = h("code", {}, text);
	if (language) inner.dataset.language = language;
	return h("div", { className: "block" }, h("pre", { tabIndex: 0 }, inner), button);
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function table(lines) {
	const row = (line, tag) => h("tr", {}, ...cells(line).map((cell) => h(tag, {}, ...inline(cell))));
	return h("table", {}, h("thead", {}, row(lines[0], "th")), h("tbody", {}, ...lines.slice(2).map((line) => row(line, "td"))));
}

const ITEM = /^(\s*)([-*+]|\d+[.)])\s+(.*)$/;

/** Items of one list; deeper ones are lists of their own. */
function list(lines) {
	const items = [];
	const [, indent, mark] = ITEM.exec(lines[0]);
	for (const line of lines) {
		const found = ITEM.exec(line);
		if (found && found[1].length <= indent.length) items.push([found[3]]);
		else items.at(-1).push(line);
	}
	const content = ([first, ...more]) => {
		const at = more.findIndex((line) => ITEM.test(line));
		const text = [first, ...(at < 0 ? more : more.slice(0, at)).map((line) => line.trim())].join("\n");
		return h("li", {}, ...inline(text), at < 0 ? null : list(more.slice(at)));
	};
	const ordered = /\d/.test(mark);
	const element = h(ordered ? "ol" : "ul", {}, ...items.map(content));
	if (ordered) element.start = parseInt(mark, 10);
	return element;
}

/** A whole text as elements. A code block that is not closed yet is one already, so that streams do not flicker. */
export function render(text) {
	const lines = text.split("\n");
	const out = [];
	let at = 0;
	const take = (more) => {
		const from = at;
		do at += 1; while (at < lines.length && more(lines[at]));
		return lines.slice(from, at);
	};
	while (at < lines.length) {
		const line = lines[at];
		const fence = /^\s*(```+|~~~+)\s*([\w+#.-]*)/.exec(line);
		const heading = /^(#{1,6})\s+(.*)$/.exec(line);
		if (fence) {
			const inner = take((next) => !next.trim().startsWith(fence[1])).slice(1);
			at += 1;
			out.push(code(inner, fence[2]));
		} else if (!line.trim()) {
			at += 1;
		} else if (heading) {
			at += 1;
			out.push(h(`h${Math.min(heading[1].length + 2, 6)}`, {}, ...inline(heading[2])));
		} else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
			at += 1;
			out.push(h("hr"));
		} else if (/^\s*>/.test(line)) {
			const quoted = take((next) => /^\s*>/.test(next)).map((next) => next.replace(/^\s*> ?/, ""));
			out.push(h("blockquote", {}, ...render(quoted.join("\n"))));
		} else if (ITEM.test(line)) {
			out.push(list(take((next) => ITEM.test(next) || /^\s+\S/.test(next))));
		} else if (line.includes("|") && /^[\s|:-]+$/.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) {
			out.push(table(take((next) => next.includes("|"))));
		} else {
			const plain = (next) => next.trim() && !/^(\s*(```|~~~|>)|#{1,6}\s)/.test(next) && !ITEM.test(next);
			const nodes = take(plain).flatMap((next, i) => (i ? [h("br"), ...inline(next)] : inline(next)));
			out.push(h("p", {}, ...nodes));
		}
	}
	return out;
}
