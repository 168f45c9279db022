//! Small questions to servers: enough to see that they serve and what they count, without a client library.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A server on loopback that has not answered by then does not serve.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A connection to a loopback port on which no read or write waits for longer than [`PATIENCE`].
pub(crate) fn connect(port: u16) -> Result<TcpStream, String> {
    let failed = |wrong: std::io::Error| format!("cannot connect to port {port}: {wrong}");
    let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    Ok(stream)
}

/// Sends `question` and reads until the server closes the connection.
pub(crate) fn once(port: u16, question: &str) -> Result<String, String> {
    let mut stream = connect(port)?;
    let mut answer = Vec::new();
    stream.write_all(question.as_bytes()).map_err(|wrong| format!("cannot ask port {port}: {wrong}"))?;
    stream.read_to_end(&mut answer).map_err(|wrong| format!("port {port} did not answer: {wrong}"))?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The body of a page; any answer but 200 is an error.
pub(crate) fn page(port: u16, path: &str) -> Result<String, String> {
    // HTTP/1.0, so that the body comes in one piece and the connection is closed behind it.
    let answer = once(port, &format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("port {port} does not speak HTTP: {answer}"))?;
    if head.split_whitespace().nth(1) == Some("200") {
        Ok(body.to_owned())
    } else {
        Err(format!("{path}: {}: {body}", head.lines().next().unwrap_or_default()))
    }
}

/// Runs a program to its end and returns what it printed; an error holds its complaints.
pub(crate) fn program(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|wrong| format!("cannot run {name}: {wrong}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    }
}
