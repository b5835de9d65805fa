//! Several mistakes in one file, so that the user sees them all at once.

use super::error::{Error, Result};

/// The mistakes found so far.
#[derive(Default)]
pub struct Mistakes(Vec<Error>);

impl Mistakes {
    /// Returns what was read. On failure, keeps the error and returns `None`.
    pub fn take<T>(&mut self, read: Result<T>) -> Option<T> {
        let mut failed = match read {
            Ok(value) => return Some(value),
            Err(e) => Some(e),
        };
        while let Some(mut e) = failed {
            failed = e.next.take().map(|next| *next);
            self.0.push(e);
        }
        None
    }

    /// Fails with the first mistake; the others are chained to it ([`Error::next`]).
    pub fn check(self) -> Result<()> {
        let behind = |next, e| Error { next: Some(Box::new(next)), ..e };
        self.0.into_iter().rev().reduce(behind).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_in_their_order() {
        let mut inner = Mistakes::default();
        let mut outer = Mistakes::default();
        assert_eq!(outer.take(Ok(7)), Some(7));
        assert_eq!(inner.take::<()>(Err(Error::failure("b"))), None);
        assert_eq!(inner.take::<()>(Err(Error::failure("c"))), None);
        outer.take::<()>(Err(Error::failure("a")));
        outer.take(inner.check());
        outer.take::<()>(Err(Error::failure("d")));
        let e = outer.check().unwrap_err();
        assert_eq!(e.all().map(|e| e.what.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert_eq!(e.to_string(), "a");
        assert_eq!(Mistakes::default().check(), Ok(()));
    }
}
