//! Which Leases a list or a watch is about: label and field selectors.

use super::lease::Lease;
use super::status::Status;
use crate::serving::Ask;

/// Everything that a request narrows its Leases by.
#[derive(Clone, Default, Debug)]
pub(super) struct Selector {
    /// None for all of them.
    pub(super) namespace: Option<String>,
    fields: Vec<(Field, Test)>,
    labels: Vec<(String, Test)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Name,
    Namespace,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Test {
    Is(String),
    IsNot(String),
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Selector {
    pub(super) fn new(namespace: Option<&str>, ask: &Ask) -> Result<Self, Status> {
        let mut selector = Self { namespace: namespace.map(str::to_owned), ..Self::default() };
        for clause in clauses(&ask.parameter("fieldSelector").unwrap_or_default()) {
            let (name, test) = comparison(&clause)
                .ok_or_else(|| Status::bad_request(format!("invalid selector: {clause:?}; can't understand {clause:?}")))?;
            let field = match name.as_str() {
                "metadata.name" => Field::Name,
                "metadata.namespace" => Field::Namespace,
                other => {
                    let text = format!("{other:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"");
                    return Err(Status::bad_request(text));
                }
            };
            selector.fields.push((field, test));
        }
        for clause in clauses(&ask.parameter("labelSelector").unwrap_or_default()) {
            selector
                .labels
                .push(label(&clause).ok_or_else(|| Status::bad_request(format!("unable to parse requirement: {clause}")))?);
        }
        Ok(selector)
    }

    pub(super) fn names_one(mut self, name: &str) -> Self {
        self.fields.push((Field::Name, Test::Is(name.to_owned())));
        self
    }

    /// Whether it narrows at all, namespaces aside.
    pub(super) fn is_everything(&self) -> bool {
        self.fields.is_empty() && self.labels.is_empty()
    }

    pub(super) fn matches(&self, lease: &Lease) -> bool {
        let meta = &lease.metadata;
        self.namespace.as_ref().is_none_or(|it| *it == meta.namespace)
            && self.fields.iter().all(|(field, test)| match field {
                Field::Name => test.holds(Some(&meta.name)),
                Field::Namespace => test.holds(Some(&meta.namespace)),
            })
            && self.labels.iter().all(|(key, test)| test.holds(meta.labels.get(key)))
    }
}

impl Test {
    fn holds(&self, value: Option<&String>) -> bool {
        match self {
            Test::Is(wanted) => value == Some(wanted),
            Test::IsNot(unwanted) => value != Some(unwanted),
            Test::In(wanted) => value.is_some_and(|it| wanted.contains(it)),
            Test::NotIn(unwanted) => value.is_none_or(|it| !unwanted.contains(it)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
        }
    }
}

/// Split at commas that are not in parentheses.
fn clauses(text: &str) -> Vec<String> {
    let mut clauses = vec![String::new()];
    let mut depth = 0;
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if letter == ',' && depth == 0 {
            clauses.push(String::new());
        } else if let Some(last) = clauses.last_mut() {
            last.push(letter);
        }
    }
    clauses.into_iter().map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect()
}

fn comparison(clause: &str) -> Option<(String, Test)> {
    let trimmed = |(name, value): (&str, &str)| (name.trim().to_owned(), value.trim().to_owned());
    if let Some((name, value)) = clause.split_once("!=").map(trimmed) {
        return Some((name, Test::IsNot(value)));
    }
    let (name, value) = clause.split_once("==").or_else(|| clause.split_once('=')).map(trimmed)?;
    Some((name, Test::Is(value)))
}

fn label(clause: &str) -> Option<(String, Test)> {
    if let Some((head, list)) = clause.split_once('(') {
        let list: Vec<String> = list.strip_suffix(')')?.split(',').map(|it| it.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        let (key, operator) = (words.next()?.to_owned(), words.next()?);
        return match operator {
            "in" => Some((key, Test::In(list))),
            "notin" => Some((key, Test::NotIn(list))),
            _ => None,
        };
    }
    if clause.contains('=') {
        return comparison(clause);
    }
    match clause.strip_prefix('!') {
        Some(key) => Some((key.trim().to_owned(), Test::Absent)),
        None => Some((clause.to_owned(), Test::Exists)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_select() {
        let mut lease = Lease::default();
        lease.metadata.labels.insert("a".into(), "b".into());
        let cases = [
            ("a=b", true),
            ("a==c", false),
            ("a!=b", false),
            ("x!=b", true),
            ("a in (b, c)", true),
            ("a notin (b)", false),
            ("a", true),
            ("!a", false),
            ("!x,a in (b,c),a=b", true),
            ("a=b,x", false),
        ];
        for (text, matches) in cases {
            let labels = clauses(text).iter().map(|it| label(it).unwrap()).collect();
            let selector = Selector { labels, ..Selector::default() };
            assert_eq!(selector.matches(&lease), matches, "{text}");
        }
        assert_eq!(label("a of (b)"), None);
    }
}
