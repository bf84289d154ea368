//! A graph as a picture: CUDA driver API, `cuGraphDebugDotPrint`.
//!
//! A file in the DOT language: a cluster per graph, nodes with kind and number, edges. What the flags ask for in
//! addition is one line per node, the same for all flags.

use std::ffi::{CStr, c_char, c_uint};
use std::fmt::Write as _;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed};
use crate::execution::{Graph, Work};
use crate::graphs::graph;

entry! {
    fn cuGraphDebugDotPrint(h_graph: CUgraph, path: *const c_char, flags: c_uint) {
        let graph = graph(h_graph)?;
        needed(path)?;
        let path = CStr::from_ptr(path).to_str().map_err(|_| CUerror::INVALID_VALUE)?;
        let mut text = String::from("digraph dot {\n");
        draw(&mut text, &graph, flags != 0);
        text.push_str("}\n");
        // From memory: a file that cannot be written is an operating system error.
        std::fs::write(path, text).map_err(|_| CUerror::OPERATING_SYSTEM)
    }
}

fn draw(text: &mut String, graph: &Graph, with_parameters: bool) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "subgraph cluster_{} {{\nlabel=\"graph_{}\"", graph.id(), graph.id());
    for (node, content) in graph.contents() {
        let number = graph.local_id(node).unwrap_or_default();
        let mut label = format!("{:?} {number}", content.kind);
        if with_parameters {
            let _ = write!(label, "\\n{}", format!("{:?}", content.work).replace(['"', '\\'], "'"));
        }
        let _ = writeln!(text, "node_{} [shape=\"box\" label=\"{label}\"];", node.0);
        if let Work::Child(child) = &content.work {
            draw(text, child, with_parameters);
        }
    }
    text.push_str("}\n");
    for (from, to) in graph.edges() {
        let _ = writeln!(text, "node_{} -> node_{};", from.0, to.0);
    }
}
