//! The functions to trace: those of a data plane, or some named by the user.

use crate::gtp::{Direction, Function, Module, Stage};

/// A data plane, or functions named one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The kernel module with the functions; `None`: any or the kernel itself.
    pub module: Option<&'static str>,
    pub functions: Vec<Function>,
}

impl Target {
    /// The data plane of a module.
    pub fn of_module(module: Module) -> Self {
        Self { module: Some(module.name()), functions: module.functions().collect() }
    }

    /// Functions of the kernel or any module. Their arguments come from BTF, if they have
    /// it.
    pub fn functions(symbols: &[String]) -> Self {
        let function = |symbol: &String| Function {
            symbol: symbol.clone(),
            direction: Direction::Both,
            stage: Stage::Entry,
            packet: None,
            does: "",
        };
        Self { module: None, functions: symbols.iter().map(function).collect() }
    }

    /// The functions that every packet passes once; with `stages`, all functions.
    pub fn selected(&self, stages: bool) -> impl Iterator<Item = &Function> {
        let counts = move |f: &&Function| {
            stages || matches!(f.stage, Stage::Entry | Stage::Path | Stage::Transmit)
        };
        self.functions.iter().filter(counts)
    }
}
