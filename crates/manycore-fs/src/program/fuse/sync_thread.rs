//! The thread that waits for the disk, so that the threads which answer the kernel need not wait.
//! Requests that came in while it waited share its next write.

use super::shared::{Shared, errno};
use fuser::ReplyEmpty;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Starts the thread, which ends with the last sender. It replies when all that was done before is
/// on disk.
pub fn start(shared: Arc<Shared>) -> io::Result<Sender<ReplyEmpty>> {
    let (sender, receiver) = channel();
    thread::Builder::new().name("sync".into()).spawn(move || serve(&shared, &receiver))?;
    Ok(sender)
}

fn serve(shared: &Shared, receiver: &Receiver<ReplyEmpty>) {
    while let Ok(first) = receiver.recv() {
        let replies: Vec<_> = std::iter::once(first).chain(receiver.try_iter()).collect();
        let done = shared.files.sync();
        for reply in replies {
            match done {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            }
        }
    }
}
