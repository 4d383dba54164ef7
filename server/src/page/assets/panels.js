// The engine view's pictures, each from plain objects: which ticks there are and which one is looked at.

import { $ } from "./dom.js";

const LABEL = 58;
const LANE = 20;
const columns = new WeakMap();
// Of the picture that is drawn.
let pen;

/** The step that is drawn at a place of a picture; `null` for none. */
export function tickAt(canvas, x) {
	const found = (columns.get(canvas) ?? []).find((column) => x >= column.x && x < column.x + column.w);
	return found ? found.at : null;
}

/** A canvas of a height, sharp on any screen; returns what to draw with, in CSS pixels. */
function begin(id, height) {
	const canvas = $(id);
	const width = canvas.clientWidth;
	const scale = window.devicePixelRatio || 1;
	canvas.style.height = `${height}px`;
	canvas.width = Math.max(Math.round(width * scale), 1);
	canvas.height = Math.round(height * scale);
	pen = canvas.getContext("2d");
	pen.scale(scale, scale);
	pen.font = "11px system-ui, sans-serif";
	pen.textBaseline = "middle";
	return { canvas, width, height };
}

function box(colour, x, y, w, h) {
	pen.fillStyle = colour;
	pen.fillRect(x, y, w, h);
}

function note(colour, text, x, y) {
	pen.fillStyle = colour;
	pen.fillText(text, x, y);
}

function colours() {
	// Canvases know no variables: an element resolves them, for light or dark.
	const probe = $("summary");
	const paint = {};
	for (const name of ["soft", "line", "bg", "error", "prefill", "decode", "padding", "hidden", "fg"]) {
		probe.style.color = `var(--${name})`;
		paint[name] = getComputedStyle(probe).color;
	}
	const dark = parseInt(paint.bg.match(/\d+/)[0], 10) < 128;
	// Neighbours are far apart on the wheel.
	paint.slot = (id, faint) => `hsl(${(id * 137 + 205) % 360} ${faint ? 30 : 58}% ${dark ? (faint ? 32 : 62) : (faint ? 78 : 44)}%)`;
	return paint;
}

/** The steps that fit, ending at the one that is looked at, or a little behind it; each as wide as its time. */
function layout({ ticks, at }, width) {
	const room = width - LABEL - 4;
	const near = ticks.slice(Math.max(at - 200, 0), at + 1).map((tick) => tick.us).sort((a, b) => a - b);
	const median = near[near.length >> 1] || 1;
	const widthOf = (tick) => Math.min(Math.max(tick.us / median * 14, 4), 60);
	let last = at;
	for (let ahead = 0; last + 1 < ticks.length && ahead + widthOf(ticks[last + 1]) < room / 3;) ahead += widthOf(ticks[last += 1]);
	const found = [];
	let used = 0;
	for (let i = last; i >= 0; i -= 1) {
		const w = widthOf(ticks[i]);
		if (used + w > room) break;
		used += w;
		found.unshift({ at: i, w });
	}
	for (let i = last + 1; i < ticks.length && used + widthOf(ticks[i]) <= room; i += 1) {
		used += widthOf(ticks[i]);
		found.push({ at: i, w: widthOf(ticks[i]) });
	}
	let x = LABEL;
	for (const column of found) {
		column.x = x;
		x += column.w;
	}
	return found;
}

function cursor(paint, column, height) {
	pen.strokeStyle = paint.fg;
	pen.lineWidth = 1.5;
	pen.strokeRect(column.x + 0.5, 0.75, column.w - 1, height - 1.5);
	pen.lineWidth = 1;
}

function lanes(state, paint) {
	const shown = layout(state, $("lanes").clientWidth);
	const ids = new Set((state.engine?.slots ?? []).map((slot) => slot.id));
	for (const { at } of shown) for (const slot of state.ticks[at].slots) ids.add(slot.id);
	for (const { at } of shown) for (const row of state.ticks[at].rows) ids.add(row.slot);
	const order = [...ids].sort((a, b) => a - b);
	const top = 18;
	const { canvas, width, height } = begin("lanes", top + Math.max(order.length + 1, 2) * LANE + 4);
	columns.set(canvas, shown);
	pen.fillStyle = paint.soft;
	order.forEach((id, i) => pen.fillText(`slot ${id}`, 6, top + i * LANE + LANE / 2));
	pen.fillText("padding", 6, top + order.length * LANE + LANE / 2);
	for (let i = 0; i <= order.length; i += 1) box(paint.line, LABEL, top + i * LANE, width, 1);
	let named = "";
	let free = 0;
	for (const column of shown) {
		const tick = state.ticks[column.at];
		const graph = tick.graphs[0] ?? `width ${tick.width}`;
		if (graph !== named) {
			named = graph;
			if (column.x > free) {
				note(paint.soft, graph, column.x, 9);
				free = column.x + pen.measureText(graph).width + 8;
			}
		}
		// A slot with tokens and nothing in this step is a thin line.
		for (const slot of tick.slots) {
			box(paint.slot(slot.id, true), column.x, top + order.indexOf(slot.id) * LANE + LANE / 2 - 1, column.w, 2);
		}
		const bar = (lane, n, colour) => {
			const h = Math.max((LANE - 3) * Math.min(n / tick.width, 1), 4);
			box(colour, column.x + 0.5, top + (lane + 1) * LANE - 1 - h, column.w - 1, h);
			if (column.w > 15 && n > 1) {
				note(h > 11 ? paint.bg : paint.fg, n, column.x + 2, top + lane * LANE + (h > 11 ? LANE / 2 + 1 : 6));
			}
		};
		for (const row of tick.rows) bar(order.indexOf(row.slot), row.n, paint[row.kind]);
		if (tick.padding) bar(order.length, tick.padding, paint.padding);
		if (column.at === state.at) cursor(paint, column, height);
	}
}

/** Cells of a run, in stripes of all its owners. */
function run(paint, x, y, w, h, owners) {
	if (owners.length === 1) {
		box(paint.slot(owners[0]), x, y, w, h);
		return;
	}
	const stripe = 3;
	pen.save();
	pen.beginPath();
	pen.rect(x, y, w, h);
	pen.clip();
	for (let i = 0, at = x - h; at < x + w; at += stripe, i += 1) {
		pen.fillStyle = paint.slot(owners[i % owners.length]);
		pen.beginPath();
		pen.moveTo(at, y + h);
		pen.lineTo(at + h, y);
		pen.lineTo(at + h + stripe, y);
		pen.lineTo(at + stripe, y + h);
		pen.fill();
	}
	pen.restore();
}

function strip(now, paint) {
	const groups = now?.cells ?? [];
	const { width } = begin("strip", Math.max(groups.length, 1) * 46 + 6);
	groups.forEach((group, i) => {
		const top = i * 46 + 18;
		const room = width - 12;
		const unit = room / Math.max(group.capacity, 1);
		const used = group.runs.reduce((sum, [, len]) => sum + len, 0);
		const extent = group.runs.reduce((most, [first, len]) => Math.max(most, first + len), 0);
		pen.fillStyle = paint.soft;
		const rule = group.window ? `, window ${group.window.join(" + ")}` : "";
		pen.fillText(`${group.name} ${used} of ${group.capacity} cells, ${extent - used} holes${rule}`, 6, top - 9);
		box(paint.hidden, 6, top, room, 18);
		for (const [first, len, , owners] of group.runs) run(paint, 6 + first * unit, top, Math.max(len * unit, 1), 18, owners);
		box(paint.fg, 6 + extent * unit, top - 2, 1, 22);
	});
}

/** The cells that a row sees: those of its slot at positions up to its own, its window kept, as `[first, len, first position]`. */
export function seen(group, slot, pos) {
	const [size, sinks] = group.window ?? [Infinity, 0];
	const found = [];
	for (const [first, len, start, owners] of group.runs) {
		if (!owners.includes(slot)) continue;
		const add = (from, to) => { if (to > from) found.push([first + from - start, to - from, from]); };
		const end = Math.min(start + len, pos + 1);
		const begins = Math.max(start, pos + 1 - size);
		add(start, Math.min(end, sinks, begins));
		add(begins, end);
	}
	return found;
}

function mask(tick, paint) {
	const group = tick?.cells[0];
	const rows = tick ? tick.rows.flatMap((part) => Array.from({ length: part.n }, (_, i) => ({ ...part, pos: part.from + i }))) : [];
	const most = Math.min(rows.length, 256);
	const unitY = Math.max(Math.min(Math.floor(160 / Math.max(most, 1)), 14), 1);
	const { width } = begin("mask", Math.max(most * unitY, 14) + 26);
	if (!group) return;
	const extent = Math.max(...group.runs.map(([first, len]) => first + len), 1);
	const unit = (width - LABEL - 6) / extent;
	box(paint.hidden, LABEL, 4, extent * unit, most * unitY);
	let free = 0;
	const thick = Math.max(unitY - 0.5, 1);
	rows.slice(0, most).forEach((row, i) => {
		const top = 4 + i * unitY;
		for (const [first, len, pos] of seen(group, row.slot, row.pos)) {
			const past = Math.min(Math.max(row.from - pos, 0), len);
			box(paint.slot(row.slot), LABEL + first * unit, top, past * unit, thick);
			box(paint[row.kind], LABEL + (first + past) * unit, top, (len - past) * unit, thick);
		}
		const y = top + Math.max(unitY, 10) / 2;
		if (row.pos === row.from && y >= free) {
			free = y + 12;
			note(paint.soft, `slot ${row.slot}`, 6, y);
		}
	});
	note(paint.soft, `${rows.length} rows × ${extent} cells: past in the slot's colour, new as above`, LABEL, most * unitY + 15);
}

function axis(paint, width, height, top, unit) {
	box(paint.line, LABEL, height - 5, width, 1);
	note(paint.soft, `${top} ${unit}`, 4, 10);
	pen.fillText("0", 4, height - 8);
}

function times(state, paint) {
	const { canvas, width, height } = begin("times", 110);
	const shown = layout(state, width);
	columns.set(canvas, shown);
	const of = shown.map(({ at }) => state.ticks[at]);
	// Assumed times are right next to each other only: they are drawn to the scale of the measured ones.
	const assumed = state.engine?.predicted_by === "assumed";
	const sum = (key) => of.reduce((total, tick) => total + tick[key], 0);
	const scale = assumed ? sum("us") / sum("us_predicted") : 1;
	const most = Math.max(...of.map((tick) => Math.max(tick.us, tick.us_predicted * scale)), 1);
	const y = (us) => height - 5 - us / most * (height - 24);
	axis(paint, width, height, (most / 1000).toFixed(1), "ms");
	shown.forEach((column, i) => {
		box(paint.prefill, column.x + 0.5, y(of[i].us), column.w - 1, height - 5 - y(of[i].us));
		box(paint.decode, column.x, y(of[i].us_predicted * scale) - 1, column.w, 2.5);
		if (column.at === state.at) cursor(paint, column, height);
	});
	note(paint.soft, `bars measured, lines ${assumed ? "assumed, scaled" : "predicted"}`, LABEL + 4, 9);
}

function queue(state, paint) {
	const { canvas, width, height } = begin("queue", 110);
	const narrow = layout(state, width);
	columns.set(canvas, narrow);
	const of = narrow.map(({ at }) => state.ticks[at]);
	const running = (tick) => tick.slots.filter((slot) => slot.state !== "idle").length;
	const most = Math.max(...of.map((tick) => tick.queue + running(tick)), 1);
	axis(paint, width, height, most, "");
	narrow.forEach((column, i) => {
		const unit = (height - 24) / most;
		const base = running(of[i]) * unit;
		box(paint.padding, column.x, height - 5 - base, column.w, base);
		box(paint.error, column.x, height - 5 - base - of[i].queue * unit, column.w, of[i].queue * unit);
		if (column.at === state.at) cursor(paint, column, height);
	});
	note(paint.soft, "running, and waiting on top", LABEL - 20, 9);
}

export function draw(state) {
	const paint = colours();
	const tick = state.ticks[state.at];
	lanes(state, paint);
	strip(tick ?? state.engine, paint);
	mask(tick, paint);
	times(state, paint);
	queue(state, paint);
}
