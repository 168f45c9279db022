//! The report in a real browser: it draws without an error, asks the network for nothing, fits a phone, and its player plays.
//!
//! The pages and some pictures of them are left in cargo's directory for test files (`target/tmp`), to be looked at.

mod sample;
mod webdriver;

use std::fs;
use std::path::{Path, PathBuf};

use incumbent_lab::report::{self, model::Report};
use serde_json::{Value, json};
use webdriver::Browser;

fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The page of `report` as a file of its own for each test, so that tests do not meet.
fn page(name: &str, report: &Report) -> PathBuf {
    let file = scratch().join(format!("report-{name}.html"));
    fs::write(&file, report::render(report)).unwrap();
    file
}

/// A browser that shows the sample.
fn show_sample(name: &str) -> Browser {
    let browser = Browser::start(scratch(), name);
    browser.open(&page(name, &sample::report()));
    browser.resize(1280, 900, false);
    browser
}

/// No script failed, and the browser has nothing to complain of.
fn assert_no_errors(browser: &Browser) {
    assert_eq!(browser.run("return window.__errors"), json!([]));
    let complaints: Vec<Value> = browser.log("browser").into_iter().filter(|it| it["level"] == "SEVERE").collect();
    assert_eq!(complaints, Vec::<Value>::new());
}

/// What the player says of the present: time, who leads, what happens, and each node's own belief.
fn present(browser: &Browser) -> Value {
    browser.run(
        "const text = (id) => document.getElementById(id).textContent; \
         return [text('clock'), text('verdict'), text('now'), [...document.querySelectorAll('#nodes li')].map((it) => it.textContent)]",
    )
}

#[test]
fn the_page_draws_without_an_error_and_asks_the_network_for_nothing() {
    let browser = Browser::start(scratch(), "alone");
    let file = page("alone", &sample::report());
    browser.log("performance");
    browser.open(&file);
    browser.resize(1280, 900, false);
    let drawn = browser.run(
        "return ['#matrix td', '#findings li', '#plot-cost path.line', '#plot-time path.line', '#plot-spread .median', '#lanes .role', '#log li'] \
         .map((it) => document.querySelectorAll(it).length)",
    );
    assert!(drawn.as_array().unwrap().iter().all(|it| it.as_u64() > Some(0)), "{drawn}");
    assert_no_errors(&browser);

    let asked: Vec<String> = browser
        .log("performance")
        .iter()
        .filter_map(|entry| serde_json::from_str::<Value>(entry["message"].as_str()?).ok())
        .filter(|entry| entry["message"]["method"] == "Network.requestWillBeSent")
        .filter_map(|entry| Some(entry["message"]["params"]["request"]["url"].as_str()?.to_owned()))
        .collect();
    let itself = format!("file://{}", file.display());
    assert!(asked.contains(&itself), "the log has the page itself, so it would have others: {asked:?}");
    let others: Vec<&String> = asked.iter().filter(|url| **url != itself && !url.starts_with("data:")).collect();
    assert!(others.is_empty(), "{others:?}");

    // And it could not if it wanted to.
    let refused = browser.run_async("fetch('http://127.0.0.1:9/').then(() => done('loaded'), () => done('refused'))");
    assert_eq!(refused, "refused");
    let policy = browser.log("browser").iter().any(|it| it["message"].as_str().unwrap().contains("Content Security Policy"));
    assert!(policy, "the page's own policy refused, not the network");
}

#[test]
fn the_table_has_every_protocol_and_guard_and_its_dangers_are_red() {
    let browser = show_sample("table");
    let rows = || {
        let script = "return [...document.querySelectorAll('#matrix tbody tr')].map((row) => \
             [row.querySelector('.protocol').textContent, row.querySelector('.guard').textContent, row.querySelectorAll('td.danger').length])";
        let rows = browser.run(script);
        let rows: Vec<(String, String, u64)> = serde_json::from_value(rows).unwrap();
        rows
    };
    // The page opens with the first scenario that had two leaders.
    assert_eq!(browser.run("return document.querySelector('input[name=scenario]:checked').value"), "partition");
    let mut found = rows();
    assert!(found[..4].iter().all(|(_, guard, red)| guard == "guard on" && *red == 0), "safest first: {found:?}");
    assert!(found[4..].iter().all(|(_, guard, red)| guard == "guard off" && *red == 2), "{found:?}");
    found.sort();
    let named: Vec<&str> = found.iter().map(|(protocol, _, _)| protocol.as_str()).collect();
    assert_eq!(named, ["bully", "bully", "chang-roberts", "chang-roberts", "raft", "raft", "ring", "ring"]);
    let words = browser.run("return document.querySelector('#findings').textContent");
    let words = words.as_str().unwrap();
    assert!(words.contains("Without the quorum guard") && words.contains("two leaders at once"), "{words}");
    assert!(words.contains("With the guard, never, in any run."), "{words}");

    // One run in two hundred had two leaders: its percentiles are zero, and it is red all the same.
    browser.run("document.querySelector('input[value=\"slow-node\"]').click()");
    let red: Vec<(String, String, u64)> = rows().into_iter().filter(|(_, _, red)| *red > 0).collect();
    assert_eq!(red, [("ring".to_owned(), "guard off".to_owned(), 2)]);
    let words = browser.run("return document.querySelector('#findings').textContent");
    assert!(words.as_str().unwrap().contains("in 1 of 200 runs"), "{words}");

    // It was measured in one size only: no other can be chosen.
    let sizes = "return [...document.querySelectorAll('#sizes input:not(:disabled)')].map((it) => it.value)";
    assert_eq!(browser.run(sizes), json!(["5"]));
    let lead = browser.run("return document.getElementById('growth-lead').textContent");
    assert!(lead.as_str().unwrap().contains("with 5 nodes only"), "{lead}");

    // A cold start has no failover, so it has no such column; sorting works by any other.
    browser.run("document.querySelector('input[value=\"cold-start\"]').click()");
    let heads = "return [...document.querySelectorAll('#matrix thead button')].map((it) => it.textContent)";
    assert!(!browser.run(heads).as_array().unwrap().contains(&json!("Failover")));
    let order = |browser: &Browser| {
        browser.run(
            "[...document.querySelectorAll('#matrix thead button')].find((it) => it.textContent === 'Election').click(); \
             return [...document.querySelectorAll('#matrix tbody tr')].map((it) => it.textContent)",
        )
    };
    let (mut ascending, descending) = (order(&browser), order(&browser));
    ascending.as_array_mut().unwrap().reverse();
    assert_eq!(ascending, descending);
    assert_no_errors(&browser);
}

#[test]
fn the_player_plays_and_pauses_and_stops_at_the_end() {
    let browser = show_sample("play");
    let clock = "parseFloat(document.getElementById('clock').textContent)";
    let label = || browser.run("return document.getElementById('play').getAttribute('aria-label')");
    assert_eq!(browser.run(&format!("return {clock}")), 0);
    browser.click("#play");
    assert_eq!(label(), "Pause");
    browser.until(&format!("{clock} > 100"));
    browser.click("#play");
    assert_eq!(label(), "Play");
    let paused = present(&browser);
    browser.frames(5);
    assert_eq!(present(&browser), paused, "a paused run stands still");

    browser.run("const speed = document.getElementById('speed'); speed.value = '4'; speed.dispatchEvent(new Event('change'))");
    browser.click("#play");
    browser.until("document.getElementById('play').getAttribute('aria-label') === 'Play'");
    assert_eq!(present(&browser)[0], "2600.0 ms");
    assert_eq!(present(&browser)[2], "The run ends");
    // Played again, it begins again.
    browser.click("#play");
    browser.until(&format!("{clock} < 2000"));
    browser.click("#play");
    assert_no_errors(&browser);
}

#[test]
fn steps_go_forward_and_back_through_the_same_states() {
    let browser = show_sample("step");
    let walk = |button: &str, times: usize| -> Vec<Value> {
        (0..times)
            .map(|_| {
                browser.click(button);
                present(&browser)
            })
            .collect()
    };
    let start = present(&browser);
    assert_eq!(start[1], "Node 5 leads, term 1");
    let forward = walk("#forward", 12);
    assert!(forward.windows(2).all(|pair| pair[0] != pair[1]), "every step changes what is said");

    // The hand-written run: at 985 ms node 2 takes office while node 5 holds it.
    let two: Vec<&Value> = forward.iter().filter(|it| it[1].as_str().unwrap().starts_with("Two leaders")).collect();
    assert_eq!(two[0][0], format!("{:.1} ms", sample::TWO_LEADERS_FROM));
    assert_eq!(two[0][1], "Two leaders: 2 (term 2) and 5 (term 1)");
    assert_eq!(two[0][2], "Node 2: is elected in term 2");

    let mut back = walk("#back", 12);
    back.reverse();
    assert_eq!(back[0], start);
    assert_eq!(back[1..], forward[..11]);
    walk("#back", 1);
    assert_eq!(present(&browser), start, "nothing is before the beginning");

    // Another time: the same steps.
    browser.open(&scratch().join("report-step.html"));
    browser.frames(3);
    assert_eq!(walk("#forward", 12), forward);
    // From between two steps, back leads to the one that has passed.
    let seek = |t: f64| {
        browser
            .run(&format!("const it = document.getElementById('scrubber'); it.value = {t}; it.dispatchEvent(new Event('input'))"))
    };
    seek(sample::TWO_LEADERS_FROM - 10.0);
    let between = present(&browser);
    assert_eq!(walk("#back", 1)[0][2], between[2]);
    assert_ne!(present(&browser)[0], between[0]);
    seek(0.0);

    // By keyboard: the same steps. A click on the track gives the player the focus and moves the time.
    browser.click("#track");
    assert_ne!(present(&browser)[0], start[0]);
    browser.press("\u{E011}");
    assert_eq!(present(&browser), start, "Home");
    browser.press("\u{E014}");
    assert_eq!(present(&browser), forward[0], "right");
    browser.press("\u{E014}");
    browser.press("\u{E012}");
    assert_eq!(present(&browser), forward[0], "left");
    browser.press(" ");
    browser.until("document.getElementById('play').getAttribute('aria-label') === 'Pause'");
    browser.press(" ");
    browser.until("document.getElementById('play').getAttribute('aria-label') === 'Play'");
    assert_no_errors(&browser);
}

#[test]
fn two_leaders_are_red_and_faults_are_shaded() {
    let browser = show_sample("red");
    let red = "rgb(196, 22, 42)";
    let fills = |css: &str| {
        browser.run(&format!("return [...document.querySelectorAll('{css}')].map((it) => getComputedStyle(it).fill)"))
    };
    assert_eq!(fills("#lanes .overlap-strip"), json!([red]));
    let bars = fills("#lanes .overlap-bar");
    assert!(bars.as_array().unwrap().iter().all(|it| it == red), "{bars}");
    let lanes = browser
        .run("return new Set([...document.querySelectorAll('#lanes .overlap-bar')].map((it) => it.getAttribute('y'))).size");
    assert_eq!(lanes, 2, "both leaders' bars");
    assert_eq!(fills("#overview .over-overlap"), json!([red]));
    assert_eq!(browser.run("return document.querySelectorAll('#lanes .fault-shade').length"), 2, "nodes 1 and 2 are cut off");
    let labels =
        browser.run("return [...document.querySelectorAll('#lanes .strip-text')].map((it) => it.firstChild.textContent)");
    assert_eq!(labels[0], "network split: {1, 2} | {3, 4, 5}");
    assert!(labels[1].as_str().unwrap().starts_with("two leaders"), "{labels}");

    browser.run("const it = document.getElementById('scrubber'); it.value = 1500; it.dispatchEvent(new Event('input'))");
    assert_eq!(browser.run("return getComputedStyle(document.getElementById('verdict')).color"), red);
    assert_eq!(browser.run("return document.querySelectorAll('#stage .member.danger').length"), 2);

    // The guarded run of the same split has none of it. Its name and others' are text, never markup.
    let pick = "const it = document.getElementById('run'); it.value = '1'; it.dispatchEvent(new Event('change'));";
    browser.run(pick);
    assert_eq!(browser.run("return document.querySelectorAll('#lanes .overlap-strip, #lanes .overlap-bar').length"), 0);
    let names = browser.run("return [...document.querySelectorAll('#run option')].map((it) => it.textContent)");
    assert_eq!(names[3], "Ring: a paused leader wakes <b>late</b> & steps down");
    // Too many heartbeats: thinned, and said.
    browser.run(&pick.replace("'1'", "'4'"));
    let notes = browser.run("return document.getElementById('run-notes').textContent");
    assert!(notes.as_str().unwrap().contains("evenly thinned"), "{notes}");
    assert_no_errors(&browser);
}

#[test]
fn the_theme_follows_the_system_until_the_reader_chooses() {
    let browser = show_sample("theme");
    let paper = || browser.run("return getComputedStyle(document.body).backgroundColor");
    let (light, dark) = ("rgb(253, 253, 251)", "rgb(19, 21, 24)");
    browser.prefer("dark");
    browser.until("document.documentElement.dataset.theme === 'dark'");
    assert_eq!(paper(), dark);
    browser.prefer("light");
    browser.until("document.documentElement.dataset.theme === 'light'");
    assert_eq!(paper(), light);
    browser.click("#theme");
    assert_eq!(paper(), dark);
    // The choice outlives the page.
    browser.open(&scratch().join("report-theme.html"));
    assert_eq!(paper(), dark);
    browser.click("#theme");
    assert_eq!(paper(), light);
    assert_no_errors(&browser);
}

#[test]
fn a_phone_shows_all_of_it_without_scrolling_sideways() {
    let browser = show_sample("phone");
    for width in [390, 360, 320] {
        browser.resize(width, 800, true);
        let wide = browser.run(&format!(
            "const own = '.scroller *, svg *, .unseen, .tip'; \
             return [...document.querySelectorAll('body *')].filter((it) => !it.matches(own) && getComputedStyle(it).position !== 'absolute') \
             .filter((it) => it.getBoundingClientRect().right > {width} + 0.5).map((it) => it.tagName + '#' + it.id + '.' + it.className)"
        ));
        assert_eq!(wide, json!([]), "wider than {width}");
        assert_eq!(browser.run("return document.documentElement.scrollWidth"), width, "the page scrolls sideways");
    }
    // What is touched is large enough for a finger.
    let small = browser.run(
        "return [...document.querySelectorAll('.transport button, .transport select, #theme, .legend button')] \
         .filter((it) => it.getBoundingClientRect().height < 34).map((it) => it.id || it.textContent)",
    );
    assert_eq!(small, json!([]));
    touch_the_track(&browser);
    assert_no_errors(&browser);
}

/// One finger moves the time, two fingers apart zoom in.
fn touch_the_track(browser: &Browser) {
    browser.run("document.getElementById('track').scrollIntoView({ block: 'center' })");
    let middle = browser.run(
        "const box = document.getElementById('track').getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]",
    );
    let (x, y) = (middle[0].as_f64().unwrap(), middle[1].as_f64().unwrap());
    let touch = |kind: &str, points: &[f64]| {
        let points: Vec<Value> = points.iter().zip(0..).map(|(dx, id)| json!({ "x": x + dx, "y": y, "id": id })).collect();
        browser.devtools("Input.dispatchTouchEvent", &json!({ "type": kind, "touchPoints": points }));
    };
    let before = present(browser);
    touch("touchStart", &[0.0]);
    touch("touchEnd", &[]);
    assert_ne!(present(browser)[0], before[0], "a finger moves the time");
    let zoomed = "document.querySelector('#overview .over-view').getAttribute('visibility')";
    assert_eq!(browser.run(&format!("return {zoomed}")), "hidden");
    touch("touchStart", &[-20.0, 20.0]);
    for apart in [30.0, 50.0, 80.0] {
        touch("touchMove", &[-apart, apart]);
    }
    touch("touchEnd", &[]);
    browser.until(&format!("{zoomed} === 'visible'"));
}

#[test]
fn a_report_with_little_in_it_is_a_page_too() {
    let browser = Browser::start(scratch(), "little");
    let whole = sample::report();
    let empty = Report { results: Vec::new(), timelines: Vec::new(), scenarios: Vec::new(), ..whole.clone() };
    let mut one = whole.clone();
    one.results.retain(|it| it.nodes == 3 && it.protocol == "raft" && it.guarded && it.scenario == "cold-start");
    one.scenarios.clear();
    one.timelines.truncate(1);
    one.timelines[0].messages.clear();
    one.timelines[0].events.clear();
    assert_eq!(one.results.len(), 1);
    for (name, report) in [("empty", empty), ("one", one)] {
        browser.open(&page(name, &report));
        browser.resize(1280, 900, false);
        assert_no_errors(&browser);
        assert_eq!(browser.run("return document.querySelectorAll('#matrix tbody tr').length"), report.results.len());
    }
    browser.click("#forward");
    browser.picture(None, &scratch().join("report-one.png"));
}

#[test]
fn pictures_are_there_to_be_looked_at() {
    let browser = Browser::start(scratch(), "pictures");
    let file = page("pictures", &sample::report());
    for (width, height, mobile, device) in [(1280, 900, false, "desktop"), (390, 844, true, "phone")] {
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            browser.open(&file);
            browser.resize(width, height, mobile);
            let picture = scratch().join(format!("report-{device}-{scheme}.png"));
            browser.picture(None, &picture);
            assert!(fs::read(&picture).unwrap().starts_with(b"\x89PNG"));
        }
    }
}

#[test]
#[should_panic(expected = "`cargo xtask test` installs it")]
fn a_missing_browser_is_a_failure_that_says_what_to_do() {
    webdriver::program("a-browser-that-is-not-there");
}
