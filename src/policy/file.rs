//! The policy file.

use std::path::Path;

use super::Policy;
use crate::error::{Error, Result};

pub fn load(_path: &Path) -> Result<(Policy, Vec<String>)> {
    Err(Error::failure("reading policies is not written yet"))
}

pub fn parse(_text: &str, _path: &Path) -> Result<(Policy, Vec<String>)> {
    Err(Error::failure("reading policies is not written yet"))
}
