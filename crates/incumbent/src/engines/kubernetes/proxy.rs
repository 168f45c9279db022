//! Which proxy leads to Kubernetes, if any. Pure: the environment is an argument.
//!
//! The client would take the environment's whichever server it is for, and looks for the proxy's own name in `NO_PROXY`. So this is decided here, as Kubernetes' own
//! programs do: the kubeconfig's `proxy-url` comes first, then `HTTPS_PROXY` unless `NO_PROXY` has the server. This machine is never asked for through a proxy.

use std::net::IpAddr;

use kube::config::Kubeconfig;

/// What the environment says.
#[derive(Default)]
pub(super) struct Environment {
    https_proxy: Option<String>,
    no_proxy: String,
}

impl Environment {
    pub(super) fn of_the_process() -> Environment {
        let told = |names: [&str; 2]| names.iter().find_map(|it| std::env::var(it).ok().filter(|it| !it.is_empty()));
        Environment {
            https_proxy: told(["HTTPS_PROXY", "https_proxy"]),
            no_proxy: told(["NO_PROXY", "no_proxy"]).unwrap_or_default(),
        }
    }
}

/// The `proxy-url` of a context's cluster; of the current one, if none is named.
pub(super) fn named(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|it| it.name == context)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|it| it.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.clone().filter(|it| !it.is_empty())
}

/// The proxy to a server.
pub(super) fn chosen(named: Option<String>, environment: &Environment, host: &str, port: u16) -> Option<String> {
    // The brackets around an address of version 6 are the URL's.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let here = host == "localhost" || host.parse().is_ok_and(|it: IpAddr| it.is_loopback());
    let exempt = |entry: &str| covers(entry.trim(), host, port);
    let usual = || environment.https_proxy.clone().filter(|_| !here && !environment.no_proxy.split(',').any(exempt));
    named.or_else(usual)
}

/// Whether an entry of `NO_PROXY` has the server: `*`, an address, a network, or a domain with all below it, the last two also with a port.
fn covers(entry: &str, host: &str, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        let (network, bits) = entry.split_once('/').unzip();
        return match (network.unwrap_or(entry).parse(), bits) {
            (Ok(network), None) => address == network,
            (Ok(network), Some(bits)) => bits.parse().is_ok_and(|bits| is_within(address, network, bits)),
            (Err(_), _) => entry.parse().is_ok_and(|it: std::net::SocketAddr| it.ip() == address && it.port() == port),
        };
    }
    let (domain, of_port) = entry.rsplit_once(':').unzip();
    if of_port.is_some_and(|it| it.parse() != Ok(port)) {
        return false;
    }
    let (domain, host) = (domain.unwrap_or(entry).to_ascii_lowercase(), host.to_ascii_lowercase());
    let domain = domain.trim_start_matches('*');
    match domain.strip_prefix('.') {
        // Only what is below it.
        Some(_) => host.ends_with(domain),
        None => !domain.is_empty() && (host == domain || host.ends_with(&format!(".{domain}"))),
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let first = |value: u128, width: u32| value.checked_shr(width.saturating_sub(bits)).unwrap_or(0);
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => first(address.to_bits().into(), 32) == first(network.to_bits().into(), 32),
        (IpAddr::V6(address), IpAddr::V6(network)) => first(address.to_bits(), 128) == first(network.to_bits(), 128),
        (_, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_is_read_as_others_read_it() {
        for (entry, host, covered) in [
            ("*", "a.b", true),
            ("b", "a.b", true),
            ("b", "b", true),
            ("b", "ab", false),
            ("B", "a.b", true),
            (".b", "a.b", true),
            (".b", "b", false),
            ("*.b", "a.b", true),
            ("a.b:6443", "a.b", true),
            ("a.b:443", "a.b", false),
            ("", "a.b", false),
            (".", "a.b", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3:6443", "10.1.2.3", true),
            ("10.1.2.3:443", "10.1.2.3", false),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/16", "10.1.2.3", false),
            ("0.0.0.0/0", "10.1.2.3", true),
            ("10.0.0.0/99", "10.1.2.3", false),
            ("fd00::/8", "fd00::1", true),
            ("::/0", "fd00::1", true),
            ("fd00::/8", "10.1.2.3", false),
            ("2.3", "10.1.2.3", false),
        ] {
            assert_eq!(covers(entry, host, 6443), covered, "{entry:?} and {host:?}");
        }
    }

    #[test]
    fn the_kubeconfig_comes_before_the_environment_which_is_not_for_this_machine() {
        let environment = Environment { https_proxy: Some("http://proxy.b:3128".into()), no_proxy: "x, .b,".into() };
        let chosen = |named: Option<&str>, host| chosen(named.map(str::to_owned), &environment, host, 443);
        assert_eq!(chosen(None, "k.c").as_deref(), Some("http://proxy.b:3128"), "although NO_PROXY has the proxy itself");
        for direct in ["k.b", "x", "localhost", "127.0.0.1", "127.8.8.8", "[::1]"] {
            assert_eq!(chosen(None, direct), None, "{direct}");
            assert_eq!(chosen(Some("socks5://h:1"), direct).as_deref(), Some("socks5://h:1"), "{direct}");
        }
        assert_eq!(super::chosen(None, &Environment::default(), "k.c", 443), None);
    }
}
