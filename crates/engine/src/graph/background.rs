//! Evaluation in the background.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::eval;
use crate::{Result, Tensor};

enum Message {
    Eval(Vec<Tensor>),
    /// Answered when everything before it is done.
    Barrier(Sender<()>),
}

/// The queue of the evaluation thread, which the first use starts. `None` if the thread cannot be spawned.
fn queue() -> &'static Mutex<Option<Sender<Message>>> {
    static QUEUE: OnceLock<Mutex<Option<Sender<Message>>>> = OnceLock::new();
    QUEUE.get_or_init(|| {
        let (sender, receiver) = channel::<Message>();
        let spawned = std::thread::Builder::new()
            .name("bessemer-eval".to_owned())
            .spawn(move || {
                for message in receiver {
                    match message {
                        // Reading the tensors returns the error again.
                        Message::Eval(tensors) => {
                            let _ = eval(&tensors.iter().collect::<Vec<_>>());
                        }
                        Message::Barrier(done) => {
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

/// Starts to evaluate these tensors in the background and returns. Reading one waits for it, and returns the error if
/// the evaluation failed. Errors that the tensors already carry are returned immediately.
pub fn async_eval(tensors: &[&Tensor]) -> Result<()> {
    for tensor in tensors {
        tensor.check()?;
    }
    match send(Message::Eval(tensors.iter().map(|&t| t.clone()).collect())) {
        Ok(()) => Ok(()),
        Err(_) => eval(tensors),
    }
}

/// Waits until all evaluations that [`async_eval`] has started are done.
pub fn synchronize() {
    let (sender, receiver) = channel();
    if send(Message::Barrier(sender)).is_ok() {
        // An error means that the thread has ended; then there is nothing to wait for.
        let _ = receiver.recv();
    }
}
