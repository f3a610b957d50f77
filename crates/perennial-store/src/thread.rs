//! Threads and blocking work: the one place that starts either.

use crate::{Error, ErrorKind, Result};
use std::thread::JoinHandle;

/// Starts a named thread.
#[allow(clippy::disallowed_methods, reason = "this is the one home of threads")]
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(|error| {
        Error::new(ErrorKind::Setup, format!("can't start the thread {name:?}")).because(error)
    })
}

/// Runs work that blocks on the disk where it does not hold up other tasks: on tokio's blocking threads, or right
/// here when no tokio runtime is running.
#[allow(clippy::disallowed_methods, reason = "this is the one home of blocking work")]
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Err(_) => work(),
        Ok(handle) => match handle.spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(Error::new(ErrorKind::Unsettled, "blocking work was cut short").because(error)),
        },
    }
}
