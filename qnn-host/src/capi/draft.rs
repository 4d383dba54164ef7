//! A graph while it is composed: each tensor and node is checked as it is added.
//!
//! A package is asked once whether it accepts a node. When the graph is finalized, it is asked only if it does not know the node as
//! it is: it was registered later, or an operand has a new encoding.

use std::collections::{HashMap, HashSet};

use crate::bytes::Bytes;
use crate::error::Error;
use crate::graph::Violation;
use crate::ir::{self, Role, Tensor, TensorId};
use crate::package::Packages;
use crate::validate::{self, Wiring};

use super::objects::{CONTEXT_TENSOR, ContextShared};

/// A graph being composed.
#[derive(Clone, Default)]
pub(super) struct Draft {
    pub(super) ir: ir::SourceGraph,
    names: HashMap<String, TensorId>,
    node_names: HashSet<String>,
    wiring: Wiring,
    /// Context tensors used so far, by their id.
    imported: HashMap<u32, TensorId>,
    /// Tensors whose data or encoding may be replaced.
    pub(super) updateable: Vec<TensorId>,
    /// For each node: how many packages were registered when the one that has its op, if one does, was asked about it.
    pub(super) asked: Vec<usize>,
}

impl Draft {
    pub(super) fn new(name: &str) -> Self {
        Self { ir: ir::SourceGraph { name: name.to_owned(), ..ir::SourceGraph::default() }, ..Self::default() }
    }

    /// A finalized graph again, of which the first `asked` packages know all nodes.
    pub(super) fn reopen(
        ir: &ir::SourceGraph,
        updateable: &[TensorId],
        packages: &Packages,
        asked: usize,
    ) -> Result<Self, Error> {
        let mut draft = Self::new(&ir.name);
        for (i, tensor) in ir.tensors.iter().enumerate() {
            draft.add_tensor(tensor.clone(), updateable.contains(&TensorId(i as u32)))?;
        }
        for node in &ir.nodes {
            if packages.find(&node.op).is_none() {
                validate::check_node(&draft.ir, node).map_err(Error::Node)?;
            }
            draft.put(node.clone(), asked)?;
        }
        Ok(draft)
    }

    /// Adds a checked tensor.
    pub(super) fn add_tensor(&mut self, tensor: Tensor, updateable: bool) -> Result<TensorId, Error> {
        self.check_tensor(&tensor)?;
        self.add_checked(tensor, updateable)
    }

    /// Whether a tensor can be added.
    pub(super) fn check_tensor(&self, tensor: &Tensor) -> Result<(), Error> {
        validate::check_tensor(tensor).and_then(|()| validate::check_scales(tensor)).map_err(Error::TensorParam)?;
        if self.names.contains_key(&tensor.name) {
            return Err(Error::TensorExists { graph: self.ir.name.clone(), tensor: tensor.name.clone() });
        }
        Ok(())
    }

    /// Adds a tensor that [`Draft::check_tensor`] took.
    pub(super) fn add_checked(&mut self, tensor: Tensor, updateable: bool) -> Result<TensorId, Error> {
        let id = TensorId(self.ir.tensors.len() as u32);
        self.names.insert(tensor.name.clone(), id);
        self.ir.tensors.push(tensor);
        if updateable {
            self.updateable.push(id);
        }
        Ok(id)
    }

    /// The tensor behind a client's id; a context tensor is taken into the graph when first used.
    pub(super) fn resolve(&mut self, core: &ContextShared, id: u32, name: &str) -> Result<TensorId, Error> {
        let missing = || Error::NoSuchTensor { graph: self.ir.name.clone(), tensor: name.to_owned(), id };
        if id & CONTEXT_TENSOR == 0 {
            let index = id.checked_sub(1).filter(|&i| (i as usize) < self.ir.tensors.len()).ok_or_else(missing)?;
            return Ok(TensorId(index));
        }
        if let Some(&known) = self.imported.get(&id) {
            return Ok(known);
        }
        let tensor = core.tensors.read().get((id & !CONTEXT_TENSOR) as usize).cloned().ok_or_else(missing)?;
        let local = self.add_tensor(tensor, false)?;
        self.imported.insert(id, local);
        Ok(local)
    }

    /// A tensor without a name of its own: stands for a left-out optional input.
    pub(super) fn null_tensor(&mut self) -> TensorId {
        if let Some(i) = self.ir.tensors.iter().position(|t| matches!(t.role, Role::Null)) {
            return TensorId(i as u32);
        }
        let mut name = "(none)".to_owned();
        while self.names.contains_key(&name) {
            name.push('_');
        }
        let id = TensorId(self.ir.tensors.len() as u32);
        self.names.insert(name.clone(), id);
        self.ir.tensors.push(Tensor {
            name,
            dims: Vec::new(),
            dtype: ir::Dtype::F32,
            quant: ir::Quant::None,
            data_format: 0,
            role: Role::Null,
        });
        id
    }

    /// Adds a checked node; nothing is added when it breaks a rule.
    pub(super) fn add_node(&mut self, node: ir::Node, packages: &Packages) -> Result<(), Error> {
        if self.node_names.contains(&node.name) {
            let found = format!("`{}`", node.name);
            return Err(Error::Node(Violation::of_node(&node, "name", "one that is new in the graph", found)));
        }
        validate::check_op(&self.ir, &node, packages).map_err(Error::Node)?;
        self.put(node, packages.count())
    }

    /// Adds a node that was checked, by the first `asked` packages too.
    fn put(&mut self, node: ir::Node, asked: usize) -> Result<(), Error> {
        self.wiring.add(&self.ir, &node).map_err(Error::Node)?;
        self.node_names.insert(node.name.clone());
        self.ir.nodes.push(node);
        self.asked.push(asked);
        Ok(())
    }

    /// True when a tensor of that name is there.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Replaces the data or encoding of an updateable tensor.
    pub(super) fn update(&mut self, id: TensorId, quant: ir::Quant, data: Option<Bytes>) -> Result<(), Error> {
        let graph = self.ir.name.clone();
        let tensor = &mut self.ir.tensors[id.0 as usize];
        let refuse = |what: String| Error::TensorUpdate { graph, tensor: tensor.name.clone(), what };
        if !self.updateable.contains(&id) {
            return Err(refuse("expected a tensor made updateable, found a fixed one".to_owned()));
        }
        let mut next = tensor.clone();
        next.quant = quant;
        match (&tensor.role, data) {
            (Role::Static(old), Some(new)) if old.len() == new.len() => next.role = Role::Static(new),
            (Role::Static(old), Some(new)) => {
                return Err(refuse(format!("expected {} bytes, found {}", old.len(), new.len())));
            }
            (_, None) => {}
            (_, Some(_)) => return Err(refuse("expected no data, found some".to_owned())),
        }
        validate::check_tensor(&next).and_then(|()| validate::check_scales(&next)).map_err(Error::TensorParam)?;
        if next.quant != tensor.quant {
            let readers = self.ir.nodes.iter().zip(&mut self.asked).filter(|(node, _)| node.inputs.contains(&id));
            readers.for_each(|(_, asked)| *asked = 0);
        }
        *tensor = next;
        Ok(())
    }

    /// All that `finalize` requires of a graph before it is prepared.
    pub(super) fn finish(&self) -> Result<(), Error> {
        self.wiring.finish(&self.ir).map_err(Error::Unconnected)
    }
}
