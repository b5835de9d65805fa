//! The node's pods, while a policy asks for them.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use crate::base::error::Result;
use crate::pods::{PodSettings, PodState, PodWatch};

/// The node's pods, followed while a policy asks for them.
pub struct Pods {
    kubeconfig: Option<PathBuf>,
    watch: Option<PodWatch>,
    pub state: PodState,
}

impl Pods {
    pub fn new(kubeconfig: Option<PathBuf>) -> Self {
        Self { kubeconfig, watch: None, state: PodState::default() }
    }

    /// Starts or stops following them.
    pub fn follow(&mut self, wanted: bool) -> Result<()> {
        if wanted && self.watch.is_none() {
            let settings = PodSettings { kubeconfig: self.kubeconfig.clone(), node: None };
            self.watch = Some(PodWatch::start(settings)?);
        } else if !wanted && self.watch.is_some() {
            self.watch = None;
            self.state = PodState::default();
        }
        Ok(())
    }

    /// Whether anything known has changed.
    pub fn update(&mut self) -> bool {
        let Some(watch) = &self.watch else { return false };
        let state = watch.state();
        let differs = state != self.state;
        self.state = state;
        differs
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }
}
