//! The thread that starts every process, and never ends.
//!
//! A server must die with the test, however the test dies. The kernel can see to that (`setpriv --pdeathsig`), but the "parent" whose death
//! it reports is the *thread* that made the child, and a test's thread ends long before its process. So all children are made by one
//! thread that lives as long as the process does.

use std::io;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

struct Order {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

static KEEPER: LazyLock<Sender<Order>> = LazyLock::new(|| {
    let (sender, orders) = channel::<Order>();
    std::thread::Builder::new()
        .name("testbed-keeper".into())
        .spawn(move || {
            for mut order in orders {
                // Who asked may have given up; a child nobody knows of would be nobody's to kill.
                if let Err(unwanted) = order.answer.send(order.command.spawn())
                    && let Ok(mut child) = unwanted.0
                {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        })
        .expect("a thread can be started");
    sender
});

/// Starts `command` so that its parent, as the kernel sees it, is the whole process and not the calling thread.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (answer, started) = channel();
    KEEPER.send(Order { command, answer }).expect("the keeper never ends");
    started.recv().expect("the keeper answers every order")
}
