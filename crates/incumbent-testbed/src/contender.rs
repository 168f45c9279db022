//! A program that a test lets contend, as a process of its own: it can be paused, killed and listened to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::folder::Folder;
use crate::process::{Launch, Process, Speech};

/// A process that says what it does, line by line. Dropping it kills it.
pub struct Contender {
    process: Process,
    heard: Arc<Heard>,
    input: Mutex<Option<ChildStdin>>,
}

/// What it has said.
#[derive(Default)]
struct Heard {
    speech: Mutex<SpeechSoFar>,
    /// It has said more, or ended.
    more: Condvar,
}

#[derive(Default)]
struct SpeechSoFar {
    lines: Vec<String>,
    /// Lines that a wait has gone past.
    passed: usize,
    ended: bool,
}

/// A test waits for what will happen soon, unless the machine is very busy.
const PATIENCE: Duration = Duration::from_secs(60);

impl Contender {
    /// Starts `command`: its program, arguments, variables and folder. Input and output are the test's; its complaints go to a log.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &Command) -> Result<Contender, String> {
        let mut launch = Launch::new(command.get_program().into()).arguments(command.get_args());
        launch.variables = command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
        launch.works_in = command.get_current_dir().map(Into::into);
        launch.speech = Speech::Heard;
        let process = Process::new("a contender", Folder::new("contender")?, launch);
        let (input, output) = process.start_heard()?;
        let heard = Arc::new(Heard::default());
        let listener = Arc::clone(&heard);
        std::thread::Builder::new()
            .name("contender-listener".into())
            .spawn(move || listen(&listener, output))
            .map_err(|wrong| format!("cannot start a thread: {wrong}"))?;
        Ok(Contender { process, heard, input: Mutex::new(Some(input)) })
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Gives it a line.
    ///
    /// # Errors
    /// If it does not listen any more.
    pub fn say(&self, line: &str) -> Result<(), String> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let input = input.as_mut().ok_or("its input is closed")?;
        input.write_all(format!("{line}\n").as_bytes()).map_err(|wrong| format!("a contender does not listen: {wrong}"))
    }

    /// Ends its input.
    pub fn hang_up(&self) {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Everything it has said up to now.
    pub fn lines(&self) -> Vec<String> {
        self.heard().lines.clone()
    }

    /// Everything it has said, when it has ended: also what it said last.
    ///
    /// # Panics
    /// If its output does not end within a minute.
    #[track_caller]
    pub fn all_lines(&self) -> Vec<String> {
        let ended = self.heard.more.wait_timeout_while(self.heard(), PATIENCE, |speech| !speech.ended);
        let (speech, waited) = ended.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "its output has not ended within {PATIENCE:?}");
        speech.lines.clone()
    }

    /// Waits for the next line that is wanted, and returns it. Lines before it are passed over; those behind are for the next call.
    ///
    /// # Panics
    /// If it ends without saying so, or does not say so within a minute: with `what` was waited for, what it said, and its complaints.
    #[track_caller]
    pub fn hear(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        let mut speech = self.heard();
        loop {
            while let Some(line) = speech.lines.get(speech.passed).cloned() {
                speech.passed += 1;
                if wanted(&line) {
                    return line;
                }
            }
            let left = PATIENCE.saturating_sub(began.elapsed());
            if speech.ended || left.is_zero() {
                let said = speech.lines.join("\n");
                drop(speech);
                panic!("heard in vain for: {what}; it said:\n{said}\nand complained:\n{}", self.process.log_tail(20));
            }
            speech = self.heard.more.wait_timeout(speech, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until it has ended by itself, and returns its exit code; `None` if a signal ended it.
    ///
    /// # Panics
    /// If it does not end within a minute.
    #[track_caller]
    pub fn wait(&self) -> Option<i32> {
        self.process.wait(PATIENCE).unwrap_or_else(|| panic!("it has not ended within {PATIENCE:?}")).code()
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    ///
    /// # Errors
    /// If it does not, and had to be killed.
    pub fn stop(&self) -> Result<(), String> {
        self.process.stop()
    }

    /// Kills it (SIGKILL), with all its children.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Stops it in its tracks (SIGSTOP), with all its children.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.process.resume();
    }

    fn heard(&self) -> MutexGuard<'_, SpeechSoFar> {
        self.heard.speech.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listen(heard: &Heard, output: ChildStdout) {
    let note = |change: &dyn Fn(&mut SpeechSoFar)| {
        change(&mut heard.speech.lock().unwrap_or_else(PoisonError::into_inner));
        heard.more.notify_all();
    };
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        note(&|speech| speech.lines.push(line.clone()));
    }
    note(&|speech| speech.ended = true);
}
