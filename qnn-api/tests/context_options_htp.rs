//! Options of a graph on Qualcomm's own library: a binary records what was asked for.
//!
//! A process of its own: the emulator cannot run graphs of different VTCM sizes while both are there.

use std::sync::Arc;

use genie_types::{Dtype, TensorInfo};
use qnn_api::library::runtime;
use qnn_api::*;

fn compose(backend: &Arc<Backend>, htp: HtpGraphOptions) -> (Context, Graph) {
    let context = Context::create(backend, &ContextOptions::default()).unwrap();
    let options = GraphOptions { priority: Some(Priority::High), htp: Some(htp) };
    let mut graph = context.compose("tiny", &options).unwrap();
    let info = |name: &str| TensorInfo::new(name, [4, 64], Dtype::F16);
    let x = graph.tensor(&info("x"), TensorKind::Input).unwrap();
    let y = graph.tensor(&info("y"), TensorKind::Output).unwrap();
    graph.node("softmax", "Softmax", &[], &[x], &[y]).unwrap();
    let graph = graph.finalize().unwrap();
    (context, graph)
}

fn run(graph: &mut Graph) -> Result<Vec<u8>> {
    let (x, mut y) = (vec![0; 512], vec![0; 512]);
    let mut session = graph.session();
    session.input(0, &x)?.output(0, &mut y)?;
    session.run()?;
    Ok(y)
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn options_of_a_graph_arrive() {
    let library = Library::open_by_name(runtime::HTP)
        .unwrap_or_else(|e| panic!("{e}; {}", e.hint().map_or_else(String::new, |hint| hint.to_string())));
    let backend = Backend::new(&library, &BackendOptions { soc: Some(57), ..Default::default() }).unwrap();
    let htp = |vtcm_mb, optimization, hvx_threads| HtpGraphOptions {
        float16: true,
        vtcm_mb: Some(vtcm_mb),
        optimization: Some(optimization),
        hvx_threads: Some(hvx_threads),
    };
    // Softmax of equal numbers: 1/64 each, 0x2400 in float16, give or take a few steps of its last place.
    let is_right = |pair: &[u8]| u16::from_le_bytes([pair[0], pair[1]]).abs_diff(0x2400) <= 8;
    for (htp, vtcm) in [(htp(2, 1, 2), 2 << 20), (htp(8, 3, 4), 8 << 20), (htp(4, 2, 4), 4 << 20)] {
        let (context, mut graph) = compose(&backend, htp);
        assert!(run(&mut graph).unwrap().chunks_exact(2).all(is_right), "{htp:?}");
        let info = binary_info(&library, &context.to_bytes().unwrap()).unwrap();
        let noted = info.htp_graphs.first().copied().flatten().unwrap_or_else(|| panic!("no note: {info:?}"));
        let found = (noted.vtcm_bytes, Some(noted.optimization), Some(noted.hvx_threads));
        assert_eq!(found, (vtcm, htp.optimization, htp.hvx_threads), "{noted:?}");
    }
}
