//! A browser for tests: Debian's chromium, driven by chromedriver over its HTTP interface on the loopback.
//!
//! The driver picks its own port, the browser gets an empty profile, and both are ended when the value is dropped, also
//! when a test fails. A missing browser is a failure that says what to do, never a reason to skip.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A hung browser fails the test instead of holding it up for ever.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A running browser with one page.
pub(crate) struct Browser {
    driver: Child,
    /// Kept open: a driver that writes to a closed pipe would die of it.
    stdout: BufReader<ChildStdout>,
    port: u16,
    session: Option<String>,
    profile: PathBuf,
}

impl Browser {
    /// Starts a browser whose profile is a new directory below `scratch`.
    pub(crate) fn start(scratch: &Path, name: &str) -> Browser {
        let chromium = program("chromium");
        let profile = scratch.join(format!("profile-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&profile);
        fs::create_dir_all(&profile).unwrap();
        let mut driver =
            Command::new(program("chromedriver")).arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(driver.stdout.take().unwrap());
        // Whoever fails from here on drops the browser, and that ends the driver.
        let mut browser = Browser { driver, stdout, port: 0, session: None, profile };
        browser.port = port_told(&mut browser.stdout);
        let options = json!({
            "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
                format!("--user-data-dir={}", browser.profile.display()),
            ],
            "binary": chromium,
        });
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        let answer = browser.ask("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        browser.session = Some(answer["sessionId"].as_str().expect("a session has an id").to_owned());
        browser.call("POST", "/timeouts", &json!({ "script": 50_000, "pageLoad": 50_000 }));
        // Before any script of the page: an error while it loads must not go unseen.
        browser.devtools(
            "Page.addScriptToEvaluateOnNewDocument",
            &json!({ "source": "window.__errors = []; \
                addEventListener('error', (event) => __errors.push(String(event.message))); \
                addEventListener('unhandledrejection', (event) => __errors.push(String(event.reason)));" }),
        );
        browser
    }

    /// Loads a file and waits until it is loaded.
    pub(crate) fn open(&self, file: &Path) {
        self.call("POST", "/url", &json!({ "url": format!("file://{}", file.display()) }));
    }

    /// Runs `script` as the body of a function in the page and gives what it returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs `script`, which calls `done` with what it found out.
    pub(crate) fn run_async(&self, script: &str) -> Value {
        let script = format!("const done = arguments[0]; {script}");
        self.call("POST", "/execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Waits, frame by frame, until the expression `condition` is true in the page; fails after the script timeout.
    pub(crate) fn until(&self, condition: &str) {
        self.run_async(&format!("const look = () => {{ if ({condition}) done(); else requestAnimationFrame(look); }}; look();"));
    }

    /// Waits until the page has been drawn `count` times more.
    pub(crate) fn frames(&self, count: u32) {
        self.run_async(&format!(
            "let left = {count}; const next = () => {{ if (left-- === 0) done(); else requestAnimationFrame(next); }}; next();"
        ));
    }

    /// Clicks an element as a person does: it has to be visible and not covered by another one.
    pub(crate) fn click(&self, css: &str) {
        let element = self.find(css);
        self.call("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Presses keys on the element that has the focus.
    pub(crate) fn press(&self, key: &str) {
        let actions = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        self.call("POST", "/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    /// Speaks to the browser's own debugging interface.
    pub(crate) fn devtools(&self, command: &str, params: &Value) -> Value {
        self.call("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": params }))
    }

    /// Makes the page as wide as a device with `width` by `height` points.
    pub(crate) fn resize(&self, width: u32, height: u32, mobile: bool) {
        let scale = if mobile { 2 } else { 1 };
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
        // Not innerWidth: a page that is too wide for a phone makes that grow.
        self.until(&format!("document.documentElement.clientWidth === {width}"));
        // In one the page hears of its width, in the next it draws; one more for what the drawing moves.
        self.frames(3);
    }

    /// Tells the page that the system is `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// A picture of the whole page, or of the element `css`.
    pub(crate) fn picture(&self, css: Option<&str>, to: &Path) {
        let clip = match css {
            Some(css) => self.run(&format!(
                "const box = document.querySelector('{css}').getBoundingClientRect(); \
                 return {{ x: box.left + scrollX, y: box.top + scrollY, width: box.width, height: box.height, scale: 1 }}"
            )),
            None => self.run("return { x: 0, y: 0, width: innerWidth, height: document.documentElement.scrollHeight, scale: 1 }"),
        };
        let picture =
            self.devtools("Page.captureScreenshot", &json!({ "format": "png", "captureBeyondViewport": true, "clip": clip }));
        fs::write(to, decode_base64(picture["data"].as_str().unwrap())).unwrap();
    }

    /// What the browser has written to its log of `kind` (`browser` or `performance`) since the last call.
    pub(crate) fn log(&self, kind: &str) -> Vec<Value> {
        self.call("POST", "/se/log", &json!({ "type": kind })).as_array().cloned().unwrap_or_default()
    }

    fn find(&self, css: &str) -> String {
        let found = self.call("POST", "/element", &json!({ "using": "css selector", "value": css }));
        let reference = found.as_object().and_then(|it| it.values().next()).and_then(Value::as_str);
        reference.unwrap_or_else(|| panic!("no element {css}")).to_owned()
    }

    /// A command of the session.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let session = self.session.as_ref().expect("the session has begun");
        self.ask(method, &format!("/session/{session}{path}"), body)
    }

    /// One HTTP exchange; fails the test with what the driver says.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = exchange(self.port, method, path, body).unwrap_or_else(|error| panic!("chromedriver, {path}: {error}"));
        let value = answer["value"].clone();
        if let Some(error) = value["error"].as_str() {
            panic!("chromedriver, {path}: {error}: {}\n{body}", value["message"].as_str().unwrap_or_default());
        }
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser with the session; killed outright it would leave it behind. A failure here must not
        // hide the one that brought us here.
        if let Some(session) = &self.session {
            let _ = exchange(self.port, "DELETE", &format!("/session/{session}"), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}

/// The path of a program that has to be there.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file()).unwrap_or_else(|| {
        panic!("{name} is missing: `cargo xtask test` installs it (Debian packages chromium and chromium-driver)")
    })
}

/// The port in "ChromeDriver was started successfully on port 12345."
fn port_told(lines: &mut impl BufRead) -> u16 {
    for line in lines.lines() {
        let line = line.expect("chromedriver speaks");
        if let Some((_, port)) = line.split_once("successfully on port ") {
            return port.trim_end_matches('.').parse().expect("a port is a number");
        }
    }
    panic!("chromedriver ended before it named its port");
}

/// Sends one request and reads one answer.
fn exchange(port: u16, method: &str, path: &str, body: &Value) -> std::io::Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let body = body.to_string();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let mut answer = vec![0; length];
    reader.read_exact(&mut answer)?;
    serde_json::from_slice(&answer).map_err(std::io::Error::other)
}

/// Screenshots come as base64.
fn decode_base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes().filter(|it| *it != b'=') {
        let value = ALPHABET.iter().position(|it| *it == letter).expect("base64");
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
