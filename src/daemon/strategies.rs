//! The strategies of Gthulhu's API, while the config asks for them.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::SystemTime;

use super::live::failed;
use super::reports::ApiStatus;
use crate::base::error::{Error, Result};
use crate::base::log;
use crate::decision_maker::{Settings, Strategies, StrategyWatch};
use crate::policy::Rule;

/// The strategies of the API: those in force, and those that it sends.
#[derive(Default)]
pub struct Api {
    url: Option<String>,
    watch: Option<StrategyWatch>,
    /// What the API has sent, as last seen.
    state: Strategies,
    /// When the problem in `state` began.
    failing_since: Option<SystemTime>,
    /// The strategies in force.
    rules: Arc<Vec<Rule>>,
    /// Why the strategies in `state` are not in force, since when, and beside which generation they
    /// were refused.
    refused: Option<(Error, SystemTime, u32)>,
}

impl Api {
    /// Starts or stops following the API. With other settings, the rules in force stay until
    /// the API has answered.
    pub fn follow(&mut self, settings: Option<&Settings>) -> Result<()> {
        let watch = settings.cloned().map(StrategyWatch::start).transpose()?;
        self.watch = watch;
        self.url = settings.map(|settings| settings.url.clone());
        let rules = settings.is_none().then(Arc::default);
        self.state = Strategies { rules, ..Strategies::default() };
        (self.failing_since, self.refused) = (None, None);
        Ok(())
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// The strategies in force.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Where they come from, for messages.
    pub fn name(&self) -> String {
        self.url.as_ref().map_or("api".into(), |url| format!("Gthulhu's API at {url}"))
    }

    /// Looks at what the API has sent, and logs when a problem begins or ends. Returns
    /// strategies to bring into force beside the policy of `generation`.
    pub fn update(&mut self, generation: u32) -> Option<Arc<Vec<Rule>>> {
        if let Some(watch) = &self.watch {
            let state = watch.state();
            self.tell(&state);
            if state.rules != self.state.rules {
                self.refused = None;
            }
            self.state = state;
        }
        let tried = self.refused.as_ref().is_some_and(|(_, _, beside)| *beside == generation);
        self.state.rules.clone().filter(|rules| *rules != self.rules && !tried)
    }

    fn tell(&mut self, state: &Strategies) {
        if state.problem == self.state.problem {
            return;
        }
        match &state.problem {
            Some(e) => {
                self.failing_since.get_or_insert_with(SystemTime::now);
                let stay = "the strategies in force stay; gthctl will retry";
                log::error(format_args!("{e}; {stay}"));
            }
            None => {
                self.failing_since = None;
                log::info(format_args!("{} answers again", self.name()));
            }
        }
    }

    /// Remembers whether `rules`, from [`Api::update`], came into force. Returns an error
    /// that has not been reported yet.
    pub fn settle(
        &mut self,
        rules: Arc<Vec<Rule>>,
        done: Result<()>,
        generation: u32,
    ) -> Result<()> {
        let before = self.refused.take();
        let Err(e) = done else {
            self.rules = rules;
            return Ok(());
        };
        if e.at.is_none() {
            // The strategies will be tried again.
            return Err(e);
        }
        let since = before.as_ref().filter(|(told, ..)| *told == e).map(|(_, since, _)| *since);
        self.refused = Some((e.clone(), since.unwrap_or_else(SystemTime::now), generation));
        if since.is_some() { Ok(()) } else { Err(e) }
    }

    /// For `gthctl policy status`.
    pub fn status(&self) -> Option<ApiStatus> {
        let problem = self.state.problem.clone().zip(self.failing_since);
        let refused = self.refused.clone().map(|(why, since, _)| (why, since));
        let answered = self.state.answered.map(|at| at.elapsed().unwrap_or_default());
        Some(ApiStatus {
            url: self.url.clone()?,
            rules: self.rules.len(),
            answer_age_ms: answered.map(|age| age.as_millis() as u64),
            error: problem.or(refused).as_ref().map(failed),
        })
    }
}
