//! Evaluation in the background.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::eval;
use crate::{Result, Tensor};

enum Message {
    Eval(Vec<Tensor>),
    /// Answered when everything before it is done.
    Mark(Sender<()>),
}

/// The thread that evaluates, started by the first use. `None` where the system gives no thread.
fn queue() -> &'static Mutex<Option<Sender<Message>>> {
    static QUEUE: OnceLock<Mutex<Option<Sender<Message>>>> = OnceLock::new();
    QUEUE.get_or_init(|| {
        let (sender, receiver) = channel::<Message>();
        let spawned = std::thread::Builder::new()
            .name("bessemer-eval".to_owned())
            .spawn(move || {
                for message in receiver {
                    match message {
                        // An error stays with the tensors: whoever reads them gets it.
                        Message::Eval(tensors) => {
                            let _ = eval(&tensors.iter().collect::<Vec<_>>());
                        }
                        Message::Mark(done) => {
                            let _ = done.send(());
                        }
                    }
                }
            });
        Mutex::new(spawned.is_ok().then_some(sender))
    })
}

fn send(message: Message) -> Result<(), Message> {
    let queue = queue().lock().unwrap_or_else(PoisonError::into_inner);
    match &*queue {
        Some(sender) => sender.send(message).map_err(|e| e.0),
        None => Err(message),
    }
}

/// Begins to compute these tensors and returns. Reading one waits for it; an error in computing one is
/// returned to whoever reads it. Errors that the tensors carry already are returned at once.
pub fn async_eval(tensors: &[&Tensor]) -> Result<()> {
    for tensor in tensors {
        tensor.check()?;
    }
    match send(Message::Eval(tensors.iter().map(|&t| t.clone()).collect())) {
        Ok(()) => Ok(()),
        Err(_) => eval(tensors),
    }
}

/// Waits until all that [`async_eval`] began is done.
pub fn synchronize() {
    let (sender, receiver) = channel();
    if send(Message::Mark(sender)).is_ok() {
        // An answer or a thread that is gone: in both cases nothing is left to wait for.
        let _ = receiver.recv();
    }
}
