//! `incumbent lab run FILE --watch`: the run in slow motion, in the terminal.
//!
//! The run is played to its end first, which takes milliseconds; what is shown is the recording. The terminal is given back as it was
//! however this ends: by key, by signal, by error, by panic.

mod film;
mod screen;

use std::io::{IsTerminal as _, Write};
use std::time::{Duration, Instant};

use incumbent_lab::observation::Moment;
use incumbent_lab::scenario::{Outcome, Scenario};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};

use self::film::Film;
use self::screen::{Picture, Playing};
use crate::console::Console;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// A picture is drawn this often: the eye sees motion, and a slow connection bears it.
const PICTURE_EVERY: Duration = Duration::from_millis(40);
/// How long after a signal the terminal is waited for. When it has hung up, what reads its keys reads nothing, for ever and at full speed.
const GRACE: Duration = Duration::from_millis(500);
/// The slowest and the fastest, as powers of two of the film's own pace.
const SPEEDS: (i32, i32) = (-4, 6);

/// Refuses what cannot be watched before anything is done.
pub(crate) fn check() -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Failure::Input {
        what: "--watch needs a terminal, and the standard output is none".to_owned(),
        hint: "run it in a terminal, or leave --watch out to get the trace as text",
    })
}

/// How the person ended it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Having seen enough.
    Seen,
    /// By Ctrl-C or a signal.
    Interrupted,
}

/// Shows a run until the person has seen enough.
pub(crate) fn watch(
    scenario: &Scenario,
    outcome: &Outcome,
    interrupt: &Interrupt,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let _insistence = interrupt.insist_after(GRACE);
    let film = Film::of(scenario, outcome);
    let colours = console.paint.has_colours();
    let guard = Guard::enter(console.out)?;
    let mut terminal = Terminal::new(CrosstermBackend::new(guard))?;
    let mut playing = Playing { at: Moment::ZERO, is_paused: false, speed: 0, colours };
    let mut drawn = Instant::now();
    while !interrupt.asked() {
        terminal.draw(|frame| frame.render_widget(Picture { film: &film, playing }, frame.area()))?;
        let wait = PICTURE_EVERY.saturating_sub(drawn.elapsed());
        if event::poll(wait)?
            && let Some(ended) = react(&event::read()?, &film, &mut playing)
        {
            return Ok(ended);
        }
        let elapsed = drawn.elapsed();
        if elapsed >= PICTURE_EVERY {
            drawn = Instant::now();
            if !playing.is_paused {
                playing.at = film.after(playing.at, elapsed, playing.factor());
            }
        }
    }
    Ok(Ended::Interrupted)
}

/// Does what a key asks for.
fn react(event: &Event, film: &Film, playing: &mut Playing) -> Option<Ended> {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    #[allow(clippy::wildcard_enum_match_arm, reason = "the keys are crossterm's, and most of them mean nothing here")]
    match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Some(Ended::Interrupted),
        KeyCode::Char('q') | KeyCode::Esc => return Some(Ended::Seen),
        KeyCode::Char(' ') => playing.is_paused = !playing.is_paused,
        KeyCode::Right => (playing.at, playing.is_paused) = (film.next_stop(playing.at), true),
        KeyCode::Left => (playing.at, playing.is_paused) = (film.last_stop(playing.at), true),
        KeyCode::Char('+' | '=') => playing.speed = (playing.speed + 1).min(SPEEDS.1),
        KeyCode::Char('-') => playing.speed = (playing.speed - 1).max(SPEEDS.0),
        KeyCode::Char('r') | KeyCode::Home => playing.at = Moment::ZERO,
        KeyCode::End => playing.at = film.end,
        _ => {}
    }
    None
}

/// The terminal while it is ours. It is given back when this goes, and when the process panics.
struct Guard<'a> {
    out: &'a mut dyn Write,
}

impl<'a> Guard<'a> {
    fn enter(out: &'a mut dyn Write) -> Result<Guard<'a>, Failure> {
        // A panic says why on the screen that is left, not on the one that goes away.
        let say = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |why| {
            let _ = execute!(std::io::stdout(), cursor::Show, LeaveAlternateScreen);
            let _ = disable_raw_mode();
            say(why);
        }));
        enable_raw_mode()?;
        let mut guard = Guard { out };
        execute!(guard, EnterAlternateScreen, cursor::Hide)?;
        Ok(guard)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // There is nobody left to tell if the terminal is gone.
        let _ = execute!(self, cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

impl Write for Guard<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
