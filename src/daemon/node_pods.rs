//! The node's pods, while something asks for them.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use crate::base::error::Result;
use crate::pods::{PodSettings, PodState, PodWatch, node_name};

/// The node's pods, followed while a policy asks for them or their tasks are counted.
pub struct Pods {
    kubeconfig: Option<PathBuf>,
    watch: Option<PodWatch>,
    pub state: PodState,
}

impl Pods {
    pub fn new(kubeconfig: Option<PathBuf>) -> Self {
        Self { kubeconfig, watch: None, state: PodState::default() }
    }

    /// Starts or stops following them. What is known of them stays, because the API may not answer
    /// when it is asked again.
    pub fn follow(&mut self, wanted: bool) -> Result<()> {
        if wanted && self.watch.is_none() {
            self.watch = Some(PodWatch::start(self.settings())?);
            self.state = PodState::default().or_known(&self.state);
        } else if !wanted {
            self.watch = None;
        }
        Ok(())
    }

    pub fn are_followed(&self) -> bool {
        self.watch.is_some()
    }

    /// The name of this node. Fails when there is no host name.
    pub fn node(&self) -> Result<String> {
        node_name(&self.settings())
    }

    fn settings(&self) -> PodSettings {
        PodSettings { kubeconfig: self.kubeconfig.clone(), node: None }
    }

    /// Takes over what the API has sent. Returns whether anything known has changed.
    pub fn update(&mut self) -> bool {
        let Some(watch) = &self.watch else { return false };
        let state = watch.state().or_known(&self.state);
        let differs = state != self.state;
        self.state = state;
        differs
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }
}
