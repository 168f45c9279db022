//! The report in a real browser: it draws without an error, asks the network for nothing, fits a phone, and its player plays.
//!
//! The page and pictures of it are left in cargo's directory for test files (`target/tmp`), to be looked at.

mod sample;
mod webdriver;

use std::fs;
use std::path::{Path, PathBuf};

use incumbent_lab::report;
use webdriver::Browser;

fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The sample as a file of its own for each test, so that tests do not meet.
fn page(name: &str) -> PathBuf {
    let file = scratch().join(format!("report-{name}.html"));
    fs::write(&file, report::render(&sample::report())).unwrap();
    file
}

#[test]
fn pictures_for_people() {
    let browser = Browser::start(scratch(), "pictures");
    let file = page("pictures");
    for (width, height, mobile, device) in [(1280, 900, false, "desktop"), (390, 844, true, "phone")] {
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            browser.open(&file);
            browser.resize(width, height, mobile);
            browser.picture(None, &scratch().join(format!("report-{device}-{scheme}.png")));
        }
    }
}
