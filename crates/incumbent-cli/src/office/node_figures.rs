//! The figures of a node of a group of peers, in the text that Prometheus reads, from what the node reports of itself.

use std::fmt::Write as _;

use serde_json::Value;

/// One family of figures: its name, kind and meaning.
struct Family(&'static str, &'static str, &'static str);

/// Puts the node's figures before the end of a text of figures.
pub(super) fn add(text: &mut String, report: &Value) {
    const END: &str = "# EOF\n";
    let had_end = text.ends_with(END);
    text.truncate(text.len() - if had_end { END.len() } else { 0 });
    write(text, report);
    if had_end {
        text.push_str(END);
    }
}

fn write(text: &mut String, report: &Value) {
    let list = |key: &str| report[key].as_array().map_or(&[][..], Vec::as_slice);
    let number = |it: &Value| it.as_f64();
    let node = |it: &Value| format!("node=\"{}\"", it["node"]);
    family(text, &Family("incumbent_peer_messages_sent", "counter", "Messages of elections sent, by name"), |add| {
        list("messages").iter().for_each(|it| add(&named(it), number(&it["sent"])));
    });
    family(text, &Family("incumbent_peer_messages_received", "counter", "Messages of elections received, by name"), |add| {
        list("messages").iter().for_each(|it| add(&named(it), number(&it["received"])));
    });
    family(text, &Family("incumbent_peer_line_up", "gauge", "Whether another node is heard directly"), |add| {
        list("lines").iter().for_each(|it| add(&node(it), Some(f64::from(u8::from(it["state"] == "up")))));
    });
    family(text, &Family("incumbent_peer_round_trip_seconds", "gauge", "The last round trip to another node"), |add| {
        list("lines").iter().for_each(|it| add(&node(it), number(&it["round_trip_ms"]).map(|it| it / 1e3)));
    });
    family(
        text,
        &Family("incumbent_peer_dropped", "counter", "Messages to another node that were lost before they were sent"),
        |add| {
            list("lines").iter().for_each(|it| add(&node(it), number(&it["dropped"])));
        },
    );
    family(text, &Family("incumbent_peer_relayed", "counter", "Messages passed on to another node for a third"), |add| {
        list("lines").iter().for_each(|it| add(&node(it), number(&it["relayed"])));
    });
    family(text, &Family("incumbent_peer_term", "gauge", "The greatest term known, by election"), |add| {
        list("elections").iter().for_each(|it| add(&election(it), number(&it["term"])));
    });
    family(text, &Family("incumbent_peer_in_office", "gauge", "Whether this node is in office, by election"), |add| {
        list("elections").iter().for_each(|it| add(&election(it), Some(f64::from(u8::from(it["in_office"] == true)))));
    });
    let contests = &report["contests"];
    family(
        text,
        &Family("incumbent_peer_contests", "counter", "Times that this node stood for office, by how it ended"),
        |add| {
            for how in ["begun", "won", "lost"] {
                add(&format!("how=\"{how}\""), number(&contests[how]));
            }
        },
    );
    family(text, &Family("incumbent_peer_leaders_gone", "counter", "Leaders that this node gave up, by why"), |add| {
        add("why=\"silent\"", number(&contests["silences"]));
        add("why=\"dead\"", number(&contests["deaths"]));
    });
    let disk = &report["disk"];
    family(text, &Family("incumbent_peer_disk_writes", "counter", "Syncs of the disk"), |add| add("", number(&disk["writes"])));
    family(
        text,
        &Family("incumbent_peer_disk_p99_seconds", "gauge", "The slowest sync but one in a hundred of the last few hundred"),
        |add| {
            add("", number(&disk["p99_ms"]).map(|it| it / 1e3));
        },
    );
}

fn named(message: &Value) -> String {
    format!("name={}", message["name"])
}

fn election(it: &Value) -> String {
    // Names of elections have no letters that would need to be escaped.
    format!("election={}", it["name"])
}

/// Writes a family with all its samples; those without a value are left out.
fn family(text: &mut String, family: &Family, samples: impl FnOnce(&mut dyn FnMut(&str, Option<f64>))) {
    let Family(name, kind, help) = family;
    let _ = write!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
    let suffix = if *kind == "counter" { "_total" } else { "" };
    samples(&mut |labels, value| {
        let Some(value) = value else { return };
        let _ = match labels {
            "" => writeln!(text, "{name}{suffix} {value}"),
            _ => writeln!(text, "{name}{suffix}{{{labels}}} {value}"),
        };
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_becomes_figures_before_the_end() {
        let mut text = "# TYPE a gauge\na 1\n# EOF\n".to_owned();
        add(
            &mut text,
            &json!({
                "messages": [{ "name": "heartbeat", "sent": 7, "received": 0 }],
                "lines": [{ "node": 2, "state": "up", "round_trip_ms": 0.5 }, { "node": 3, "state": "down", "round_trip_ms": null }],
                "elections": [{ "name": "billing", "term": 9, "in_office": true }],
                "contests": { "begun": 2, "won": 1, "lost": 1, "silences": 0, "deaths": 1 },
            }),
        );
        for line in [
            "incumbent_peer_messages_sent_total{name=\"heartbeat\"} 7",
            "incumbent_peer_line_up{node=\"3\"} 0",
            "incumbent_peer_round_trip_seconds{node=\"2\"} 0.0005",
            "incumbent_peer_in_office{election=\"billing\"} 1",
            "incumbent_peer_leaders_gone_total{why=\"dead\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("round_trip_seconds{node=\"3\"}"), "nothing was measured there");
        assert!(text.starts_with("# TYPE a gauge\na 1\n") && text.ends_with("# EOF\n"));
    }
}
