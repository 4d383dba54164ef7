//! The report: what was found out, in words, tables and pictures. Every number in it is one of [`Facts`].

use anyhow::Result;
use explain::{BarChart, Block, Document, LineChart, Picture, Series, StepsPicture, Table};

use super::facts::{Counted, Equality, Facts, Graphs, Memory, Peak, Profile, Times};
use super::modes::{self, ModeFill};

const GIB: f64 = (1u64 << 30) as f64;
/// Memories of usual devices.
const MEMORIES: [(&str, f64); 3] = [("8 GB phone", 8e9), ("16 GB", 16e9), ("80 GB", 80e9)];

/// Columns of the longest bar.
const BAR: usize = 40;
/// Rows of the tables of steps.
const ROWS: usize = 16;

fn text(words: impl Into<String>) -> Block {
    Block::Text(words.into())
}

fn picture(name: &str, caption: &str, svg: String) -> Block {
    Block::Picture(Picture { name: name.into(), caption: caption.into(), svg })
}

fn axes(x: &str, y: &str) -> [String; 2] {
    [x.into(), y.into()]
}

/// Microseconds, milliseconds, seconds.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-4 => format!("{:.2} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

fn bytes(n: u64) -> String {
    match n as f64 {
        n if n >= GIB => format!("{:.2} GiB", n / GIB),
        n if n >= 1048576.0 => format!("{:.2} MiB", n / 1048576.0),
        n if n >= 1024.0 => format!("{:.2} KiB", n / 1024.0),
        n => format!("{n} B"),
    }
}

/// The whole document; sections without facts are left out.
pub fn document(facts: &Facts, idea_too: bool) -> Result<Document> {
    let mut blocks = Vec::new();
    let shape = &facts.shape;
    blocks.push(text(format!(
        "{}: {} layers of {}, {} query heads over {} key heads of {}, feed-forward {}, vocabulary {}. Everything below was measured on this \
         machine with the graphs of this model, or counted from its shape.",
        shape.name, shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.ffn, shape.vocab
    )));
    if idea_too {
        idea(facts, &mut blocks);
    }
    if let Some(equality) = &facts.equality {
        equal(equality, &mut blocks);
    }
    if let Some(times) = &facts.time {
        timed(times, &mut blocks)?;
    }
    if let Some(counted) = &facts.operations {
        operations(counted, &mut blocks)?;
    }
    if let Some(memory) = &facts.memory {
        memories(memory, &mut blocks)?;
    }
    if let Some(profile) = &facts.profile {
        profiled(profile, &mut blocks)?;
    }
    if let Some(graphs) = &facts.graphs {
        steps(graphs, &mut blocks)?;
    }
    if let Some(modes) = &facts.modes {
        fills(modes, &mut blocks);
    }
    Ok(Document { title: format!("The KV cache of {}", shape.name), blocks })
}

fn idea(facts: &Facts, blocks: &mut Vec<Block>) {
    let n = facts.tokens.len();
    blocks.push(Block::Heading("The idea".into()));
    blocks.push(text(format!("The prompt `{}` is {n} tokens:", facts.prompt.escape_debug())));
    let tokens = facts.tokens.iter().map(|(id, text)| format!("{id:>7}  {}", text.escape_debug()));
    blocks.push(Block::Lines(tokens.collect()));
    blocks.push(text(
        "In each layer a token x becomes a query q = x Wq, a key k = x Wk and a value v = x Wv, and sees itself and the tokens before it: \
         softmax(q K^T / sqrt(d)) V. No token sees a later one (causality), so the keys and values of a token never change once they are computed. \
         A query is needed in its own step only. So K and V are kept, and Q is not.",
    ));
    let mut lines = Vec::new();
    for step in 1..=3 {
        let before = n + step - 1;
        let (with, kept) = if step == 1 { (n, 0) } else { (1, before - 1) };
        lines.push(format!(
            "step {step}: without a cache {before} tokens go through all layers; with it {with}, and {kept} keys and values a layer are read"
        ));
    }
    blocks.push(Block::Lines(lines));
}

fn equal(equality: &Equality, blocks: &mut Vec<Block>) {
    blocks.push(Block::Heading("Equality".into()));
    let said = if equality.equal { "are the same" } else { "differ" };
    blocks.push(text(format!(
        "{} tokens, generated once by graphs without a cache and once with it, {said}. The largest difference of two logits is {:.2e}: rounding.",
        equality.steps.len(),
        equality.largest_difference
    )));
    let columns = ["step", "without cache", "with cache", "largest difference of logits"];
    let mut table = Table::new("equality", "Tokens side by side", &columns);
    for step in &equality.steps {
        let token = |(id, text): &(u32, String)| format!("{id} {}", text.escape_debug());
        let difference = format!("{:.2e}", step.largest_difference);
        table.rows.push(vec![step.step.to_string(), token(&step.naive), token(&step.cached), difference]);
    }
    blocks.push(Block::Table(table));
}

fn timed(times: &Times, blocks: &mut Vec<Block>) -> Result<()> {
    blocks.push(Block::Heading("Time".into()));
    blocks.push(text(format!(
        "A prompt of {} tokens and a reply. With the cache, the whole reply was generated (median of its runs); without it, some of its steps were run \
         and their mean stands for the others of the same graph.",
        times.prompt
    )));
    let columns = [
        "prompt",
        "generated",
        "with cache",
        "without",
        "speed-up",
        "tokens/s with",
        "tokens/s without",
        "tokens needed with",
        "without",
        "rows computed with",
        "without",
        "steps run without",
    ];
    let mut table = Table::new("time", "Times, and tokens that went through the model", &columns);
    for point in times.points.iter().chain(&times.pairs) {
        let [with, without] = point.rates();
        table.rows.push(vec![
            point.prompt.to_string(),
            point.generated.to_string(),
            time(point.cached_s[0]),
            time(point.naive_s[0]),
            format!("{:.1}", point.speed_up),
            format!("{with:.1}"),
            format!("{without:.1}"),
            point.needed_tokens[0].to_string(),
            point.needed_tokens[1].to_string(),
            point.computed_rows[0].to_string(),
            point.computed_rows[1].to_string(),
            point.naive_steps_run.to_string(),
        ]);
    }
    blocks.push(Block::Table(table));
    let line = |name: &str, of: &dyn Fn(&super::facts::TimePoint) -> [f64; 3]| Series {
        name: name.into(),
        points: times.points.iter().map(|p| (p.generated as f64, of(p)[0])).collect(),
        spread: times.points.iter().map(|p| (of(p)[1], of(p)[2])).collect(),
    };
    let chart = LineChart {
        title: "Time of a reply".into(),
        axes: axes("generated tokens", "seconds"),
        series: vec![line("without a cache", &|p| p.naive_s), line("with the cache", &|p| p.cached_s)],
        ..LineChart::default()
    };
    blocks.push(picture("time", "Time of a reply; bars span the fastest to the slowest run", chart.svg()?));
    let ratio = |p: &super::facts::TimePoint| {
        let of = |a: usize, b: usize| p.naive_s[a] / p.cached_s[b].max(1e-12);
        [p.speed_up, of(1, 2), of(2, 1)]
    };
    let chart = LineChart {
        title: "Speed-up by the cache".into(),
        axes: axes("generated tokens", "times as fast"),
        series: vec![line("time without over time with", &ratio)],
        ..LineChart::default()
    };
    blocks.push(picture("speed-up", "Speed-up against length", chart.svg()?));
    let most = times.points.iter().map(|p| p.speed_up).fold(1.0, f64::max);
    let bar = |p: &super::facts::TimePoint| {
        format!("{:>4} tokens  {:<BAR$}  {:.1} times as fast", p.generated, filled(p.speed_up / most), p.speed_up)
    };
    blocks.push(Block::Lines(times.points.iter().map(bar).collect()));
    Ok(())
}

/// A bar of blocks, in eighths of a column.
fn filled(share: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

fn operations(counted: &[Counted], blocks: &mut Vec<Block>) -> Result<()> {
    blocks.push(Block::Heading("Operations".into()));
    blocks.push(text(
        "Multiplications and additions of a reply as long as its prompt, counted from the shape: projections, attention, feed-forward part and LM \
         head. Without a cache each step takes all tokens so far: n*T + T(T+1)/2 of them. The simple formula counts attention alone: the sum of i^2*d \
         without a cache, of i*d with it.",
    ));
    let columns = [
        "prompt",
        "generated",
        "projections with",
        "attention with",
        "feed-forward with",
        "head with",
        "all with",
        "projections without",
        "attention without",
        "feed-forward without",
        "head without",
        "all without",
        "simple with",
        "simple without",
        "tokens without",
    ];
    let mut table = Table::new("operations", "Operations with the cache and without", &columns);
    for row in counted {
        let mut cells = vec![row.prompt.to_string(), row.generated.to_string()];
        for ops in [&row.with_cache, &row.without_cache] {
            cells.extend([ops.projections, ops.attention, ops.ffn, ops.head, ops.total()].map(|n| n.to_string()));
        }
        cells.extend([row.simple[1], row.simple[0], row.tokens_without_cache].map(|n| n.to_string()));
        table.rows.push(cells);
    }
    blocks.push(Block::Table(table));
    let group =
        |row: &Counted| (row.prompt.to_string(), vec![row.without_cache.total() as f64, row.with_cache.total() as f64]);
    let chart = BarChart {
        title: "Operations of a reply as long as its prompt".into(),
        axes: axes("tokens of prompt and reply, each", "operations"),
        names: vec!["without a cache".into(), "with the cache".into()],
        groups: counted.iter().map(group).collect(),
    };
    blocks.push(picture("operations", "Operations, on a logarithmic axis", chart.svg()?));
    Ok(())
}

fn memories(memory: &[Memory], blocks: &mut Vec<Block>) -> Result<()> {
    blocks.push(Block::Heading("Memory".into()));
    blocks.push(text("The cache has a key and a value for each token in each layer: 2 * layers * key heads * width of a head numbers."));
    let mut table =
        Table::new("memory", "Bytes of the cache", &["model", "type", "bytes per token", "tokens", "bytes", "shown"]);
    for row in memory {
        for (n, size) in &row.points {
            let (ty, each) = (row.cache_type.name().to_owned(), row.bytes_per_token.to_string());
            table.rows.push(vec![row.model.clone(), ty, each, n.to_string(), size.to_string(), bytes(*size)]);
        }
    }
    blocks.push(Block::Table(table));
    let line = |row: &Memory| {
        let points = row.points.iter().map(|&(n, size)| (n as f64, size as f64)).collect();
        Series::new(format!("{}, {}", row.model, row.cache_type.name()), points)
    };
    let Some((own, others)) = memory.split_first() else { return Ok(()) };
    let chart = LineChart {
        title: format!("KV cache of {}", own.model),
        axes: axes("tokens", "bytes"),
        series: vec![line(own)],
        ..LineChart::default()
    };
    blocks.push(picture("memory-own", "This model's cache", chart.svg()?));
    let halves = others.iter().filter(|row| row.cache_type == explain::CacheType::F16);
    let chart = LineChart {
        title: "KV cache of well-known shapes, half floats".into(),
        axes: axes("tokens", "bytes"),
        log: [true, true],
        series: halves.map(line).collect(),
        marks: MEMORIES.map(|(name, height)| (name.to_owned(), height)).to_vec(),
    };
    blocks.push(picture("memory", "Well-known shapes against the memory of devices", chart.svg()?));
    Ok(())
}

fn profiled(profile: &Profile, blocks: &mut Vec<Block>) -> Result<()> {
    blocks.push(Block::Heading("Where a step's time goes".into()));
    for (name, caption, rows) in [
        ("profile-with-cache", "A step with the cache", &profile.with_cache),
        ("profile-without-cache", "A step without a cache", &profile.without_cache),
    ] {
        let mut table = Table::new(name, caption, &["op", "count", "us per step", "share"]);
        for row in rows.iter().take(ROWS) {
            let share = format!("{:.1} %", 100.0 * row.share);
            table.rows.push(vec![row.op.clone(), format!("{:.1}", row.count), format!("{:.1}", row.us), share]);
        }
        blocks.push(Block::Table(table));
    }
    let Some(roofline) = &profile.roofline else {
        blocks.push(text(
            "The bytes that one step reads are not known for binaries of this backend, so there is no roofline.",
        ));
        return Ok(());
    };
    let peaks: Vec<String> = (roofline.peaks.iter())
        .map(|peak| format!("{:.1} Gop/s in {}", peak.operations_per_second / 1e9, peak.arithmetic))
        .collect();
    let knee = |peak: &Peak| peak.operations_per_second / roofline.bytes_per_second;
    let knees: Vec<f64> = roofline.peaks.iter().map(knee).collect();
    let shown: Vec<String> = knees.iter().map(|knee| format!("{knee:.1}")).collect();
    blocks.push(text(format!(
        "{} threads of this machine read {:.1} GB/s and compute {}: below {} operations per byte the memory decides. A step of \
         one token uses each weight that it reads once, so it lies there; a step of many tokens uses each many times.",
        roofline.threads,
        roofline.bytes_per_second / 1e9,
        peaks.join(", "),
        shown.join(", "),
    )));
    let over: Vec<String> = roofline.peaks.iter().map(|peak| format!("over peak in {}", peak.arithmetic)).collect();
    let mut columns =
        vec!["step", "operations", "bytes", "operations per byte", "time", "Gop/s", "bytes over bandwidth"];
    columns.extend(over.iter().map(String::as_str));
    let mut table = Table::new("roofline", "Two steps under the machine's limits", &columns);
    for point in &roofline.points {
        let (intensity, rate) = point.place();
        let mut row = vec![
            point.name.clone(),
            point.operations.to_string(),
            point.bytes.to_string(),
            format!("{intensity:.2}"),
            time(point.seconds),
            format!("{:.2}", rate / 1e9),
            time(point.bytes as f64 / roofline.bytes_per_second),
        ];
        row.extend(roofline.peaks.iter().map(|peak| time(point.operations as f64 / peak.operations_per_second)));
        table.rows.push(row);
    }
    blocks.push(Block::Table(table));
    let highest = knees.iter().copied().fold(50.0, f64::max);
    let mut series: Vec<Series> = (roofline.peaks.iter().zip(&knees))
        .map(|(peak, &knee)| {
            let limit = |x: f64| (x, (x * roofline.bytes_per_second).min(peak.operations_per_second));
            Series::new(format!("limit in {}", peak.arithmetic), [0.1, knee, 20.0 * highest].map(limit).to_vec())
        })
        .collect();
    series.extend(roofline.points.iter().map(|point| Series::new(point.name.clone(), vec![point.place()])));
    let chart = LineChart {
        title: "Roofline".into(),
        axes: axes("operations per byte read", "operations per second"),
        log: [true, true],
        series,
        marks: Vec::new(),
    };
    blocks.push(picture("roofline", "What a step reaches of what the machine can", chart.svg()?));
    Ok(())
}

fn steps(graphs: &Graphs, blocks: &mut Vec<Block>) -> Result<()> {
    blocks.push(Block::Heading("The graphs that ran".into()));
    blocks.push(text(format!(
        "Graphs have fixed widths: a step of AR-n computes n rows, padding included. Each token that a step takes adds {} to the cache.",
        bytes(graphs.row_bytes)
    )));
    for (name, title, steps) in [
        ("steps-with-cache", "Steps with the cache", &graphs.with_cache),
        ("steps-without-cache", "Steps without a cache", &graphs.without_cache),
    ] {
        let mut table = Table::new(name, title, &["step", "AR", "CL", "tokens", "padding", "rows in the cache before"]);
        for (i, step) in steps.iter().enumerate() {
            let cells = [i as u64 + 1, step.ar, step.cl, step.tokens, step.ar - step.tokens.min(step.ar), step.past];
            table.rows.push(cells.map(|n| n.to_string()).to_vec());
        }
        blocks.push(Block::Table(table));
        let chart = StepsPicture { title: title.into(), steps: steps.clone() };
        blocks.push(picture(name, "One column a step", chart.svg()?));
    }
    Ok(())
}

fn fills(modes: &[ModeFill], blocks: &mut Vec<Block>) {
    blocks.push(Block::Heading("The cache as it fills".into()));
    blocks.push(text(
        "A graph's past has one length and one address. smart-mask keeps rows from the left and hides the rest; shift-concat keeps them at the right \
         end, so that each step moves all of them; pointer-shift moves the address instead: the past begins one row later. Below, # is a row, . a column that \
         the graph sees and the mask hides, and a space memory that this step does not see.",
    ));
    let strips = modes.iter().flat_map(modes::strips).collect();
    blocks.push(Block::Lines(strips));
    let columns = ["mode", "step", "tokens", "rows before", "bytes of keys moved", "bytes of values moved"];
    let mut table = Table::new("modes", "Bytes that the update behind a step moves, all layers", &columns);
    for mode in modes {
        if let Some(why) = &mode.refused {
            table.rows.push(vec![mode.mode.into(), why.clone(), "-".into(), "-".into(), "-".into(), "-".into()]);
        }
        for (i, step) in mode.steps.iter().enumerate() {
            let counts = [i + 1, step.tokens, step.rows_before].map(|n| n as u64);
            let numbers = counts.into_iter().chain([step.key_bytes, step.value_bytes]).map(|n| n.to_string());
            table.rows.push(std::iter::once(mode.mode.to_owned()).chain(numbers).collect());
        }
    }
    blocks.push(Block::Table(table));
}

#[cfg(test)]
mod tests {
    use super::filled;

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!((filled(1.0).chars().count(), filled(0.5).chars().count(), filled(0.0).as_str()), (40, 20, ""));
        assert_eq!(filled(0.5 + 1.0 / 320.0).chars().last(), Some('▏'));
    }
}
