//! What is drawn: the nodes in a circle, the links between them, messages on their way, a table, a log.
//!
//! Colour only repeats what signs and words say, so nothing is lost without it.

use std::f64::consts::TAU;

use incumbent_lab::node::Condition;
use incumbent_lab::observation::Moment;
use incumbent_protocol::protocol::{NodeId, Role};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, Paragraph, Widget, Wrap};

use super::film::{Film, Flight, Link, Look};

/// Below this nothing sensible can be drawn.
const SMALLEST: (u16, u16) = (50, 14);
/// Links are drawn for so many nodes; with more they would be a grey square.
const LINKS_DRAWN_MAX: usize = 8;
/// So many nodes stand in the circle; with more only the table has them.
const CIRCLE_MAX: usize = 32;
const KEYS: &str = "space pause   \u{2192} step   \u{2190} back   + - speed   r again   q quit";

/// How the film is being shown.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Playing {
    pub(crate) at: Moment,
    pub(crate) is_paused: bool,
    /// Powers of two.
    pub(crate) speed: i32,
    pub(crate) colours: bool,
}

impl Playing {
    /// Times the film's own pace.
    pub(crate) fn factor(&self) -> f64 {
        2f64.powi(self.speed)
    }
}

/// One picture of a film.
pub(crate) struct Picture<'a> {
    pub(crate) film: &'a Film,
    pub(crate) playing: Playing,
}

impl Widget for Picture<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
            let text = format!("The terminal is too small: {} by {} is the least. q quits.", SMALLEST.0, SMALLEST.1);
            return Paragraph::new(text).render(area, buffer);
        }
        let log_height = (area.height / 3).clamp(5, 14);
        let [head, body, log, keys] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(6), Constraint::Length(log_height), Constraint::Length(1)])
                .areas(area);
        let [stage, side] = Layout::horizontal([Constraint::Min(24), Constraint::Length(side_width(area.width))]).areas(body);
        self.head(head, buffer);
        self.stage(stage, buffer);
        self.side(side, buffer);
        self.log(log, buffer);
        Text::styled(KEYS, self.style(Color::DarkGray)).render(keys, buffer);
    }
}

fn side_width(width: u16) -> u16 {
    (width * 2 / 5).clamp(26, 44)
}

impl Picture<'_> {
    fn style(&self, colour: Color) -> Style {
        if self.playing.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn head(&self, area: Rect, buffer: &mut Buffer) {
        let (film, playing) = (self.film, self.playing);
        let leaders = film.in_office(playing.at);
        let office = match &leaders[..] {
            [] => Span::styled("nobody leads", self.style(Color::Yellow)),
            [(node, term)] => Span::styled(format!("{node} leads term={term}"), self.style(Color::Green)),
            [..] => {
                let names: Vec<String> = leaders.iter().map(|(node, _)| node.to_string()).collect();
                Span::styled(format!("TWO LEADERS: {}", names.join(" ")), self.style(Color::Red).add_modifier(Modifier::REVERSED))
            }
        };
        let state = match (playing.at >= film.end, playing.is_paused) {
            (true, _) => "end",
            (false, true) => "paused",
            (false, false) => "",
        };
        let speed = if playing.speed < 0 { format!("1/{}", 1 << -playing.speed) } else { format!("{}", 1 << playing.speed) };
        let right = format!("t={} of {}  x{speed} {state:<6}", playing.at, film.end);
        let left_width = usize::from(area.width).saturating_sub(right.chars().count() + 1);
        let title = format!("{}, seed {}  ", film.kind, film.seed);
        let left = Text::from(vec![
            Span::styled(title, Style::new().add_modifier(Modifier::BOLD)),
            office,
            Span::raw(format!("  {}", film.file)),
        ]);
        let [a, b] = Layout::horizontal([Constraint::Length(u16::try_from(left_width).unwrap_or(u16::MAX)), Constraint::Min(0)])
            .areas(area);
        left.render(a, buffer);
        Text::raw(right).right_aligned().render(b, buffer);
    }

    fn stage(&self, area: Rect, buffer: &mut Buffer) {
        let count = self.film.circle.len();
        if count > CIRCLE_MAX {
            let text = format!("{count} nodes are too many for a circle: see the table and the log.");
            return Paragraph::new(text).wrap(Wrap { trim: true }).render(area, buffer);
        }
        let places: Vec<(NodeId, (f64, f64))> =
            self.film.circle.iter().enumerate().map(|(index, node)| (*node, place(index, count, area))).collect();
        self.links(area, &places, buffer);
        let at = self.playing.at;
        for flight in self.film.in_flight(at) {
            self.flight(area, &places, flight, buffer);
        }
        for ((node, look), (_, (x, y))) in self.film.looks(at).zip(&places) {
            let (sign, style) = self.sign(node, look);
            let label = format!("{sign}{node}");
            let left = (x - label.chars().count() as f64 / 2.0 + 0.5).round();
            put(area, buffer, left, *y, &label, style);
        }
    }

    fn links(&self, area: Rect, places: &[(NodeId, (f64, f64))], buffer: &mut Buffer) {
        let faint = self.style(Color::DarkGray).add_modifier(Modifier::DIM);
        let bad = self.style(Color::Red);
        for (index, (a, from)) in places.iter().enumerate() {
            for (b, to) in &places[index + 1..] {
                let link = self.film.link(self.playing.at, *a, *b);
                if link != Link::Cut && places.len() <= LINKS_DRAWN_MAX {
                    for (x, y) in line(*from, *to) {
                        put(area, buffer, x, y, "\u{b7}", faint);
                    }
                }
                // A cross in the middle for a link that is cut, at the receiver's end for a way that is.
                let cross = match link {
                    Link::Whole => continue,
                    Link::Cut => between(*from, *to, 0.5),
                    Link::CutForth => between(*from, *to, 0.75),
                    Link::CutBack => between(*from, *to, 0.25),
                };
                put(area, buffer, cross.0.round(), cross.1.round(), "\u{d7}", bad);
            }
        }
    }

    fn flight(&self, area: Rect, places: &[(NodeId, (f64, f64))], flight: &Flight, buffer: &mut Buffer) {
        let find = |node: NodeId| places.iter().find(|(it, _)| *it == node).map(|(_, place)| *place);
        let (Some(from), Some(to)) = (find(flight.from), find(flight.to)) else { return };
        let way = flight.way(self.playing.at);
        // From beside the sender to beside the receiver, not over their names.
        let (x, y) = between(from, to, 0.12 + 0.76 * if flight.is_lost { way / 2.0 } else { way });
        let sign = if flight.is_routine { "\u{2022}".to_owned() } else { initial(flight.name) };
        let colour = if flight.is_lost { Color::Red } else { Color::Cyan };
        let style = if flight.is_routine { self.style(colour) } else { self.style(colour).add_modifier(Modifier::BOLD) };
        put(area, buffer, x.round(), y.round(), &sign, style);
    }

    /// The sign and the colour of a node.
    fn sign(&self, node: NodeId, look: Look) -> (&'static str, Style) {
        let leads = self.film.in_office(self.playing.at).iter().any(|(it, _)| *it == node);
        let bold = |colour| self.style(colour).add_modifier(Modifier::BOLD);
        match (look.condition, look.role) {
            (Condition::Down, _) => ("\u{d7}", self.style(Color::DarkGray)),
            (Condition::Up, _) if leads => ("\u{2605}", bold(Color::Green)),
            (Condition::Paused, _) => ("\u{2016}", bold(Color::Magenta)),
            (Condition::Up, Role::Candidate) => ("?", bold(Color::Yellow)),
            (Condition::Up, Role::Leader | Role::Follower) => ("\u{25cb}", Style::new()),
        }
    }

    fn side(&self, area: Rect, buffer: &mut Buffer) {
        let at = self.playing.at;
        let nodes = self.film.circle.len();
        let table_height = u16::try_from(nodes).unwrap_or(u16::MAX).saturating_add(2).min(area.height * 3 / 5 + 1);
        let [table, messages] = Layout::vertical([Constraint::Length(table_height), Constraint::Min(3)]).areas(area);
        let mut looks: Vec<(NodeId, Look)> = self.film.looks(at).collect();
        looks.sort_by_key(|(node, _)| *node);
        let lines = looks.into_iter().map(|(node, look)| {
            let (sign, style) = self.sign(node, look);
            Text::styled(format!("{sign} {node:<2} {}", describe(&self.film.in_office(at), node, look)), style)
        });
        boxed(table, "nodes", lines.collect(), buffer);
        boxed(messages, "in flight", self.messages(usize::from(messages.height).saturating_sub(2)), buffer);
    }

    /// The messages in flight, those that say the same as one line.
    fn messages(&self, room: usize) -> Vec<Text<'static>> {
        let mut groups: Vec<(&Flight, Vec<NodeId>)> = Vec::new();
        for flight in self.film.in_flight(self.playing.at) {
            let same = |it: &&mut (&Flight, Vec<NodeId>)| {
                it.0.from == flight.from && it.0.text == flight.text && it.0.is_lost == flight.is_lost
            };
            match groups.iter_mut().find(same) {
                Some((_, to)) => to.push(flight.to),
                None => groups.push((flight, vec![flight.to])),
            }
        }
        groups.sort_by_key(|(flight, _)| flight.is_routine);
        let mut lines: Vec<Text<'static>> = groups
            .iter()
            .map(|(flight, to)| {
                let to: Vec<String> = to.iter().map(NodeId::to_string).collect();
                let sign = if flight.is_routine { "\u{2022}".to_owned() } else { initial(flight.name) };
                let (arrow, colour) = if flight.is_lost { ("x>", Color::Red) } else { ("->", Color::Cyan) };
                Text::styled(format!("{sign} {} {arrow} {} {}", flight.from, to.join(" "), flight.text), self.style(colour))
            })
            .collect();
        if lines.len() > room && room > 0 {
            let more = lines.len() - room + 1;
            lines.truncate(room - 1);
            lines.push(Text::raw(format!("and {more} more")));
        }
        lines
    }

    fn log(&self, area: Rect, buffer: &mut Buffer) {
        let lines = self.film.log(self.playing.at);
        let room = usize::from(area.height).saturating_sub(2);
        let shown = lines[lines.len().saturating_sub(room)..].iter().map(|line| {
            if line.is_command {
                Text::styled(format!("> {}", line.text), Style::new().add_modifier(Modifier::BOLD))
            } else {
                Text::raw(line.text.clone())
            }
        });
        boxed(area, "log", shown.collect(), buffer);
    }
}

fn describe(in_office: &[(NodeId, incumbent_protocol::protocol::Term)], node: NodeId, look: Look) -> String {
    let leads = in_office.iter().any(|(it, _)| *it == node);
    let term = look.term;
    let paused = if look.condition == Condition::Paused { ", paused" } else { "" };
    match (look.condition, look.role, look.leader) {
        (Condition::Down, _, _) => "down".to_owned(),
        (_, Role::Leader, _) if leads => format!("leads term={term}{paused}"),
        (_, Role::Leader, _) => format!("out of office term={term}{paused}"),
        (_, Role::Candidate, _) => format!("candidate term={term}{paused}"),
        (_, Role::Follower, Some(leader)) => format!("follows {leader} term={term}{paused}"),
        (_, Role::Follower, None) => format!("waits term={term}{paused}"),
    }
}

/// The letter that stands for a message.
fn initial(name: &str) -> String {
    match name {
        "prevote-request" => "P".to_owned(),
        "prevote" => "p".to_owned(),
        "vote-request" => "V".to_owned(),
        "vote" => "v".to_owned(),
        _ => name.chars().take(1).flat_map(char::to_uppercase).collect(),
    }
}

fn boxed(area: Rect, title: &str, lines: Vec<Text<'static>>, buffer: &mut Buffer) {
    Paragraph::new(lines).wrap(Wrap { trim: false }).block(Block::bordered().title(title.to_owned())).render(area, buffer);
}

/// Where node `index` of `count` stands: clockwise, the first at the top.
fn place(index: usize, count: usize, area: Rect) -> (f64, f64) {
    let angle = TAU * index as f64 / count as f64 - TAU / 4.0;
    let (width, height) = (f64::from(area.width) - 1.0, f64::from(area.height) - 1.0);
    // A margin for names on both sides.
    let (x, y) = (width / 2.0 + (width / 2.0 - 3.0) * angle.cos(), height / 2.0 + (height / 2.0) * angle.sin());
    (x.round(), y.round())
}

fn between(from: (f64, f64), to: (f64, f64), way: f64) -> (f64, f64) {
    (from.0 + (to.0 - from.0) * way, from.1 + (to.1 - from.1) * way)
}

/// The cells of a line, every second one, so that it reads as dotted.
fn line(from: (f64, f64), to: (f64, f64)) -> impl Iterator<Item = (f64, f64)> {
    let steps = ((to.0 - from.0).abs() / 2.0).max((to.1 - from.1).abs()).max(1.0) as u32;
    (1..steps).map(move |step| {
        let (x, y) = between(from, to, f64::from(step) / f64::from(steps));
        (x.round(), y.round())
    })
}

/// Writes `text` at a place in `area`, as far as it fits.
fn put(area: Rect, buffer: &mut Buffer, x: f64, y: f64, text: &str, style: Style) {
    let (column, row) = (x.max(0.0) as u16, y.max(0.0) as u16);
    if column < area.width && row < area.height {
        let room = usize::from(area.width - column);
        buffer.set_stringn(area.x + column, area.y + row, text, room, style);
    }
}
