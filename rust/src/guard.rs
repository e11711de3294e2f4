// SPDX-License-Identifier: Apache-2.0
//! Runs code that works on hostile input so that a panic becomes an error and recursion has a known amount of stack.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

/// Deep values (a list in a list in a list …) are printed and dropped by recursion. This is address space only: pages
/// that are not touched cost nothing. The bounds on work keep the depth below what fits.
const STACK_BYTES: usize = 256 << 20;

fn message_of(payload: Box<dyn Any + Send>) -> String {
    let text = match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast::<&str>().map_or_else(|_| "unknown".to_string(), |text| text.to_string()),
    };
    format!("Internal failure: {text}.")
}

/// A panic is reported through the error of the call, never on stderr.
fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

/// Runs `work` on this thread.
pub fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    silence_panics();
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(message_of(payload)))
}

/// Runs `work` on a thread with a large stack of its own and waits for it.
pub fn on_large_stack<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    silence_panics();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|e| format!("Could not start a thread: {e}."))?;
        thread.join().unwrap_or_else(|payload| Err(message_of(payload)))
    })
}
