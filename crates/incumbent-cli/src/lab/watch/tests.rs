//! Pictures drawn without a terminal, and keys pressed without a keyboard.

use incumbent_lab::scenario;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyEventState;
use ratatui::style::Color;

use super::film::Link;
use super::*;

const STORY: &str = "\
# A leader is cut off; without the guard it goes on believing.
cluster raft nodes=3 guard=off seed=7
run until agreed
----

cut 1
run 400ms
show leader
expect two leaders
pause 2
run 10ms
crash 2
run 10ms
----
";

fn film() -> Film {
    let scenario = scenario::parse("story.txt", STORY).unwrap();
    let outcome = scenario::run(&scenario);
    assert_eq!(outcome.failures, []);
    Film::of(&scenario, &outcome)
}

fn ms(millis: u64) -> Moment {
    Moment(millis * 1_000_000)
}

fn playing(at: Moment) -> Playing {
    Playing { at, is_paused: false, speed: 0, colours: true }
}

/// The picture at `at` as lines of text, and whether anything in it has a colour.
fn picture(film: &Film, playing: Playing, (width, height): (u16, u16)) -> (Vec<String>, bool) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| frame.render_widget(Picture { film, playing }, frame.area())).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    let coloured = buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
    ((0..height).map(line).collect(), coloured)
}

fn contains(lines: &[String], part: &str) -> bool {
    lines.iter().any(|line| line.contains(part))
}

#[test]
fn a_picture_shows_who_leads_the_links_the_messages_and_the_log() {
    let film = film();
    let (calm, coloured) = picture(&film, playing(ms(190)), (80, 24));
    assert!(coloured);
    for part in [
        "raft, seed 7",
        "1 leads term=1",
        "story.txt",
        "\u{2605} 1  leads term=1",
        "\u{25cb} 3  follows 1 term=1",
        "t=0.188 2 3 follow 1",
        "q quit",
    ] {
        assert!(contains(&calm, part), "no {part:?} in\n{}", calm.join("\n"));
    }
    let asked = film.log(film.end).iter().find(|line| line.text.contains("3 contends term=1")).unwrap().at;
    let (contest, _) = picture(&film, playing(asked + Duration::from_micros(500)), (80, 24));
    for part in ["? 3  candidate", "P 3 -> 2 prevote-request", "P 3 x> 1 prevote-request", "\u{d7}"] {
        assert!(contains(&contest, part), "no {part:?} in\n{}", contest.join("\n"));
    }
}

#[test]
fn two_leaders_at_once_are_announced() {
    let film = film();
    let (lines, _) = picture(&film, playing(ms(500)), (120, 40));
    assert!(contains(&lines, "TWO LEADERS: 1 3"), "{}", lines.join("\n"));
    assert!(contains(&lines, "\u{2605} 1  leads term=1") && contains(&lines, "\u{2605} 3  leads term=2"));
}

#[test]
fn a_node_that_is_paused_or_down_looks_so() {
    let film = film();
    let (end, _) = picture(&film, playing(film.end), (80, 24));
    assert!(contains(&end, "\u{d7} 2  down") && contains(&end, "end"), "{}", end.join("\n"));
    let paused = Moment(film.end.0 - 15_000_000);
    assert!(contains(&picture(&film, playing(paused), (80, 24)).0, "\u{2016} 2  follows 3 term=2, paused"));
}

#[test]
fn without_colour_the_same_is_said() {
    let film = film();
    let plain = Playing { colours: false, ..playing(ms(500)) };
    let (lines, coloured) = picture(&film, plain, (80, 24));
    assert!(!coloured);
    assert_eq!(lines, picture(&film, playing(ms(500)), (80, 24)).0);
}

#[test]
fn every_size_is_drawn_or_refused_but_never_a_panic() {
    let film = film();
    for size in [(1, 1), (20, 5), (49, 14), (50, 13), (50, 14), (80, 24), (200, 60), (300, 15)] {
        let (lines, _) = picture(&film, playing(ms(500)), size);
        if size.0 >= 50 && size.1 >= 14 {
            assert!(contains(&lines, "space pause"), "{size:?}\n{}", lines.join("\n"));
        }
    }
}

#[test]
fn one_node_and_very_many_are_drawn_too() {
    for (nodes, says) in [(1, "\u{2605} 1  leads term="), (40, "too many for a circle")] {
        let text = format!("# c\ncluster raft nodes={nodes}\nrun 1s\n----\n");
        let scenario = scenario::parse("many.txt", &text).unwrap();
        let film = Film::of(&scenario, &scenario::run(&scenario));
        let (lines, _) = picture(&film, playing(film.end), (80, 24));
        assert!(contains(&lines, says), "{}", lines.join("\n"));
    }
}

#[test]
fn a_one_way_cut_is_told_from_a_whole_one() {
    let text = "# c\ncluster raft nodes=3\ncut 1 > 2\ncut 1 3\nrun 5ms\n----\n";
    let scenario = scenario::parse("links.txt", text).unwrap();
    let film = Film::of(&scenario, &scenario::run(&scenario));
    let n = incumbent_protocol::protocol::NodeId;
    let link = |a, b| film.link(ms(3), n(a), n(b));
    assert_eq!([link(1, 2), link(2, 1), link(1, 3), link(2, 3)], [Link::CutForth, Link::CutBack, Link::Cut, Link::Whole]);
}

#[test]
fn the_film_goes_slowly_where_something_happens_and_ends() {
    let film = film();
    let second = Duration::from_secs(1);
    let calm = film.after(ms(10), second, 1.0) - ms(10);
    let asked = film.log(film.end).iter().find(|line| line.text.contains("contends")).unwrap().at;
    let busy = film.after(asked, second, 1.0) - asked;
    assert!(calm > Duration::from_millis(100) && busy < Duration::from_millis(5), "{calm:?} {busy:?}");
    assert!(film.after(ms(10), second, 2.0) - ms(10) > calm);
    let mut at = Moment::ZERO;
    let mut pictures = 0;
    while at < film.end {
        at = film.after(at, PICTURE_EVERY, 1.0);
        pictures += 1;
        assert!(pictures < 10_000);
    }
    assert!(pictures > 100, "{pictures}");
}

#[test]
fn keys_pause_step_back_speed_and_end() {
    let film = film();
    let mut state = playing(ms(100));
    let press = |state: &mut Playing, code, modifiers| {
        let key = KeyEvent { code, modifiers, kind: KeyEventKind::Press, state: KeyEventState::NONE };
        react(&Event::Key(key), &film, state)
    };
    let none = KeyModifiers::NONE;
    assert_eq!(press(&mut state, KeyCode::Char(' '), none), None);
    assert!(state.is_paused);
    let before = state.at;
    press(&mut state, KeyCode::Right, none);
    let first = state.at;
    assert!(first > before && state.is_paused);
    press(&mut state, KeyCode::Right, none);
    assert!(state.at > first);
    press(&mut state, KeyCode::Left, none);
    assert_eq!(state.at, first);
    for _ in 0..20 {
        press(&mut state, KeyCode::Char('+'), none);
    }
    assert_eq!(state.speed, SPEEDS.1);
    for _ in 0..40 {
        press(&mut state, KeyCode::Char('-'), none);
    }
    assert_eq!(state.speed, SPEEDS.0);
    press(&mut state, KeyCode::End, none);
    assert_eq!(state.at, film.end);
    press(&mut state, KeyCode::Right, none);
    assert_eq!(state.at, film.end);
    press(&mut state, KeyCode::Char('r'), none);
    assert_eq!(state.at, Moment::ZERO);
    assert_eq!(press(&mut state, KeyCode::Char('q'), none), Some(Ended::Seen));
    assert_eq!(press(&mut state, KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Ended::Interrupted));
}
