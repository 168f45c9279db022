//! docs/http.md is true: its examples are run in their order on a fresh node, and its figures are those that are served.

use std::collections::BTreeSet;

use serde_json::Value;

use super::house::{House, Street};

const HANDBOOK: &str = include_str!("../../../../../docs/http.md");

/// A command line as a shell takes it apart: blanks, single and double quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_word) = (Vec::new(), String::new(), None, false);
    for letter in line.chars() {
        match (quote, letter) {
            (None, '\'' | '"') => (quote, is_word) = (Some(letter), true),
            (None, ' ') => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            (Some(open), letter) if letter == open => quote = None,
            (_, letter) => {
                word.push(letter);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

/// What curl is told, as far as the handbook tells it.
#[derive(Default)]
struct Curl {
    method: Option<String>,
    headers: Vec<(String, String)>,
    body: String,
    path: String,
}

impl Curl {
    fn parse(line: &str) -> Curl {
        let mut curl = Curl::default();
        let mut words = words(line).into_iter().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().expect("a value");
            match word.as_str() {
                "-s" | "-N" => {}
                "-X" => curl.method = Some(value()),
                "-H" => {
                    let header = value();
                    let (name, value) = header.split_once(": ").expect("a header");
                    curl.headers.push((name.to_owned(), value.to_owned()));
                }
                "-d" | "--data-binary" => curl.body = value(),
                url => curl.path = url.split_once("127.0.0.1:7272").unwrap_or_else(|| panic!("{url} in {line}")).1.to_owned(),
            }
        }
        curl
    }

    fn method(&self) -> &str {
        self.method.as_deref().unwrap_or(if self.body.is_empty() { "GET" } else { "POST" })
    }
}

/// Whether what was told is what is written, where `…` stands for anything.
fn is_like(written: &Value, told: &Value) -> bool {
    match (written, told) {
        (Value::String(any), _) if any == "…" => true,
        (Value::Object(written), Value::Object(told)) => {
            written.len() == told.len() && written.iter().all(|(name, it)| told.get(name).is_some_and(|told| is_like(it, told)))
        }
        (Value::Array(written), Value::Array(told)) => {
            written.len() == told.len() && written.iter().zip(told).all(|(written, told)| is_like(written, told))
        }
        (written, told) => written == told,
    }
}

#[tokio::test]
async fn the_examples_of_the_handbook_are_real() {
    let house = House::open().await;
    let blocks = HANDBOOK.split("```text\n").skip(1).map(|it| it.split("```").next().expect("a block"));
    let (mut asked, mut wrong) = (0, Vec::new());
    for example in blocks.flat_map(|it| it.split("$ ").skip(1).collect::<Vec<_>>()) {
        let (line, written) = example.split_once('\n').expect("a line");
        let curl = Curl::parse(line);
        asked += 1;
        if line.contains(" -N ") {
            let mut listener = house.listen(&curl.path, "").await;
            for block in written.trim_end().split("\n\n") {
                let told = listener.block().await.expect("a block");
                compare(line, block, told.trim_end(), &mut wrong);
            }
            continue;
        }
        let headers: Vec<(&str, &str)> = curl.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let answer = house.ask(curl.method(), &curl.path, &headers, curl.body.as_bytes()).await;
        compare(line, written, &String::from_utf8_lossy(&answer.body), &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
    assert!(asked >= 15, "only {asked} examples were found");
}

fn compare(line: &str, written: &str, told: &str, wrong: &mut Vec<String>) {
    let (mut written, mut told) = (written.trim_end().lines(), told.trim_end().lines());
    loop {
        let (written, told) = match (written.next(), told.next()) {
            (None, None) => return,
            (written, told) => (written.unwrap_or_default(), told.unwrap_or_default()),
        };
        let json = |it: &str| serde_json::from_str::<Value>(it.strip_prefix("data: ").unwrap_or(it)).ok();
        let fits = match (json(written), json(told)) {
            (Some(written), Some(told)) => is_like(&written, &told),
            (None, None) => written == told,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !fits {
            wrong.push(format!("\n{line}\nthe handbook says\n{written}\nand it is\n{told}\n"));
        }
    }
}

/// The names in the handbook's table of figures are those that are served, by a node that has others to speak with.
#[tokio::test]
async fn the_figures_of_the_handbook_are_those_that_are_served() {
    let street = Street::open().await;
    let port = &street.ports[0];
    port.look("/health").await;
    // Round trips are measured when there were some.
    let told = loop {
        let answer = port.ask("GET", "/metrics", &[], b"").await;
        let text = String::from_utf8(answer.body).expect("text");
        if text.contains("line_round_trip") {
            break text;
        }
    };
    assert!(told.ends_with("# EOF\n"));
    let kinds: BTreeSet<(&str, &str)> = told.lines().filter_map(|it| it.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let served: BTreeSet<String> =
        kinds.into_iter().map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() }).collect();
    let rows = HANDBOOK.lines().filter_map(|it| it.strip_prefix("| `incumbent_service_")?.split_once('`'));
    let written: BTreeSet<String> = rows.map(|(name, _)| format!("incumbent_service_{name}")).collect();
    assert_eq!(served, written);
    let counted = "incumbent_service_requests_total{protocol=\"http\",method=\"GET\",route=\"/health\",status=\"200\"} 1";
    assert!(told.contains(counted), "{told}");
    assert!(told.contains("incumbent_service_voters 3"), "{told}");
}
