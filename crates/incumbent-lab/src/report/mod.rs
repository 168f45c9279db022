//! The comparison as one HTML file that needs nothing else: no network, no other file, no program but a browser.
//!
//! The page is made of the files beside this one, written by hand and put into each other here. Its own security policy
//! forbids it to load anything. The figures travel in it as JSON, in which nothing can end the element that holds it,
//! and the scripts put text into the page only as text, so no name or message can become markup.

pub mod model;

use model::{Report, Timeline};

/// The page with its gaps: `{{name}}`.
const TEMPLATE: &str = include_str!("template.html");

/// What fills the gaps that are the same in every report. The scripts share one scope and stand in the order of use.
const PARTS: [(&str, &str); 9] = [
    ("style", include_str!("style.css")),
    ("theme", include_str!("theme.js")),
    ("draw", include_str!("draw.js")),
    ("summary", include_str!("summary.js")),
    ("plots", include_str!("plots.js")),
    ("stage", include_str!("stage.js")),
    ("lanes", include_str!("lanes.js")),
    ("player", include_str!("player.js")),
    ("app", include_str!("app.js")),
];

/// The whole page. Same report, same bytes.
pub fn render(report: &Report) -> String {
    let shown = Report { timelines: report.timelines.iter().map(Timeline::within_limits).collect(), ..report.clone() };
    let json = serde_json::to_string(&shown).expect("the report's types are plain: strings, numbers, lists");
    let title = escape_text(&report.meta.title);
    let json = escape_json(&json);
    fill(TEMPLATE, |gap| match gap {
        "title" => &title,
        "report" => &json,
        part => PARTS.iter().find(|(name, _)| *name == part).expect("the template names only what there is").1,
    })
}

/// `template` with every `{{name}}` replaced once: what is put in is not searched for gaps again.
fn fill<'a>(template: &'a str, value: impl Fn(&str) -> &'a str) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (gap, after) = after.split_once("}}").expect("a gap in the template ends");
        page.push_str(before);
        page.push_str(value(gap));
        rest = after;
    }
    page.push_str(rest);
    page
}

/// `text` as the content of an element.
fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `json` as the content of a script element: still the same JSON, without the characters that HTML or an old script
/// parser would take for something else. Outside of strings JSON has none of them.
fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => escaped.push_str(&format!("\\u{:04x}", u32::from(letter))),
            plain => escaped.push(plain),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Meta;

    const NASTY: &str = "</script><script>alert(1)</script><!-- {{style}} & \u{2028}\u{2029} \" ' \\";

    fn report(title: &str) -> Report {
        let meta = Meta {
            title: title.into(),
            version: String::new(),
            command: String::new(),
            seed: u64::MAX,
            runs: 0,
            date: String::new(),
            pace: Vec::new(),
            glossary: model::glossary(),
        };
        Report { meta, scenarios: Vec::new(), results: Vec::new(), timelines: Vec::new() }
    }

    /// What the page's script element for the figures holds.
    fn embedded(page: &str) -> &str {
        let (_, rest) = page.split_once("id=\"report\">").unwrap();
        rest.split_once("</script>").unwrap().0
    }

    #[test]
    fn no_text_can_end_the_script_that_holds_it_or_become_markup() {
        let page = render(&report(NASTY));
        let json = embedded(&page);
        assert!(!json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{json}");
        let back: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(back["meta"]["title"], NASTY);
        assert_eq!(back["meta"]["seed"], u64::MAX.to_string());
        assert!(!page.contains("<script>alert"));
        assert!(page.contains("<title>&lt;/script&gt;&lt;script&gt;alert(1)"));
    }

    #[test]
    fn every_gap_is_filled_once_and_nothing_is_left_over() {
        let page = render(&report("plain"));
        assert!(!page.contains("{{"));
        assert_eq!(page.matches("<script").count(), 3);
        assert_eq!(page.matches("<style>").count(), 1);
        for (name, part) in PARTS {
            assert!(page.contains(part), "{name}");
            assert!(!part.contains("</script") && !part.contains("</style"), "{name} would end its own element");
        }
    }

    #[test]
    fn the_page_names_no_address_but_those_of_markup_itself() {
        let page = render(&report("plain"));
        let addresses: Vec<&str> = page.split("http").skip(1).map(|rest| &rest[..rest.len().min(30)]).collect();
        for address in addresses {
            assert!(address.starts_with("://www.w3.org/") || address.starts_with("-equiv"), "http{address}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn the_same_report_makes_the_same_bytes() {
        assert_eq!(render(&report("a")), render(&report("a")));
    }
}
