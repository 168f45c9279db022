//! By what name a request came, and why that matters on a machine of one's own.
//!
//! **Problem.** Who is on this machine needs no token, and a page in a browser is on this machine: it makes its own name lead to 127.0.0.1 (DNS rebinding) and then reads what
//! it likes, for to the browser both are one origin. **Insight.** The browser says by which name it came. A page can choose any name but `localhost`, and no address.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderMap};
use hyper::http::uri::Authority;

/// Whether a request came by a name that may be a page's: neither an address nor this machine's own name. Programs that say no name at all are not browsers.
pub fn came_by_foreign_name(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().any(|it| it.to_str().map_or(true, is_foreign))
}

fn is_foreign(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return !host.is_empty() };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
    host != "localhost" && !host.ends_with(".localhost") && host.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_no_foreign_names() {
        for host in [
            "",
            "127.0.0.1",
            "127.0.0.1:7272",
            "[::1]:7272",
            "[::1]",
            "10.0.0.1:80",
            "localhost",
            "LocalHost:7272",
            "a.localhost",
            "localhost.",
        ] {
            assert!(!is_foreign(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7272",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "a b",
            "127.0.0.1@evil.example:80",
        ] {
            assert!(is_foreign(host), "{host}");
        }
    }

    #[test]
    fn of_several_names_none_may_be_foreign() {
        let mut headers = HeaderMap::new();
        assert!(!came_by_foreign_name(&headers), "no browser");
        headers.append(HOST, "localhost".parse().expect("a header"));
        assert!(!came_by_foreign_name(&headers));
        headers.append(HOST, "evil.example".parse().expect("a header"));
        assert!(came_by_foreign_name(&headers));
    }
}
