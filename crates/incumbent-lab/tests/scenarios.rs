//! Every scenario below scenarios/ is run and its trace compared, twice for the same bytes.
//!
//! `INCUMBENT_REWRITE=1 cargo test -p incumbent-lab --test scenarios` writes the traces anew. Expectations and oracles are not
//! rewritten: what they say must be true.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use incumbent_lab::clock::ClockSettings;
use incumbent_lab::fault::{Fault, Links};
use incumbent_lab::network::{Delay, Refusal};
use incumbent_lab::scenario::{self, Command, Scenario};
use incumbent_protocol::chance::Chance;
use incumbent_protocol::machine::Kind;
use incumbent_protocol::protocol::{NodeId, Request};
use incumbent_protocol::settings::{Detection, Pace, PreVote, Stability, Takeover};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files below scenarios/ that end with .txt, with the names that a person at the root of the project would use.
fn files() -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|it| it == "txt") {
                found.push(path);
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    walk(&root.join("scenarios"), &mut found);
    found.sort();
    found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_scenario_makes_the_trace_that_stands_in_its_file() {
    let rewrites = std::env::var_os("INCUMBENT_REWRITE").is_some_and(|value| value == "1");
    let (root, files) = (root(), files());
    assert!(!files.is_empty());
    let mut wrong = Vec::new();
    for file in &files {
        let path = root.join(file);
        let text = fs::read_to_string(&path).unwrap();
        let scenario = match scenario::parse(file, &text) {
            Ok(scenario) => scenario,
            Err(mistake) => {
                wrong.push(mistake.to_string());
                continue;
            }
        };
        let outcome = scenario::run(&scenario);
        assert_eq!(outcome.entries, scenario::run(&scenario).entries, "{file}: two runs differ");
        wrong.extend(outcome.failures.iter().map(|failure| failure.in_file(file)));
        if rewrites {
            fs::write(&path, outcome.rewritten(&scenario)).unwrap();
            continue;
        }
        for difference in outcome.differences(&scenario) {
            wrong.push(format!("{difference}\nif it should be so: incumbent lab run {file} --rewrite"));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n\n"));
}

#[test]
fn the_example_in_the_handbook_is_real() {
    let handbook = fs::read_to_string(root().join("docs/scenarios.md")).unwrap();
    let example = handbook.split("```").find_map(|part| part.strip_prefix("text\n")).unwrap();
    let scenario = scenario::parse("docs/scenarios.md", example).unwrap_or_else(|mistake| panic!("{mistake}"));
    let outcome = scenario::run(&scenario);
    assert_eq!(outcome.failures, []);
    assert_eq!(outcome.rewritten(&scenario), example);
}

/// A scenario of three nodes around these lines.
fn with(lines: &str) -> Scenario {
    let text = format!("# a test\ncluster raft nodes=3 seed=7\n{lines}\n");
    scenario::parse("test.txt", &text).unwrap_or_else(|mistake| panic!("{mistake}"))
}

#[test]
fn a_mistake_names_line_column_and_what_was_expected() {
    let cluster = "# c\ncluster raft nodes=3\n";
    let block = |line: &str| format!("{cluster}{line}\n----\n");
    for (text, place, says) in [
        ("".to_owned(), (1, 1), "expected '#' and what the scenario shows"),
        ("cluster raft\n".to_owned(), (1, 1), "expected '#' and what the scenario shows"),
        ("# c\n".to_owned(), (1, 1), "expected 'cluster' and a protocol, found the end of the file"),
        ("# c\nrun 2s\n".to_owned(), (2, 1), "expected 'cluster' and a protocol, found 'run'"),
        (
            "# c\ncluster\n".to_owned(),
            (2, 9),
            "expected a protocol: bully, ring, chang-roberts or raft, found the end of the line",
        ),
        ("# c\ncluster paxos\n".to_owned(), (2, 9), "unknown protocol 'paxos': it is one of bully, ring, chang-roberts, raft"),
        ("# c\ncluster raft nodes\n".to_owned(), (2, 14), "expected an option such as nodes=3, found 'nodes'"),
        ("# c\ncluster raft size=3\n".to_owned(), (2, 14), "unknown option 'size': it is one of nodes, seed"),
        ("# c\ncluster raft seed=1 seed=2\n".to_owned(), (2, 21), "'seed' is given twice"),
        ("# c\ncluster raft nodes=0\n".to_owned(), (2, 20), "at least one node"),
        ("# c\ncluster raft nodes=4000000000\n".to_owned(), (2, 20), "too many: at most 4096"),
        ("# c\ncluster raft nodes=1,1\n".to_owned(), (2, 20), "node 1 is named twice"),
        ("# c\ncluster raft nodes=1,10000\n".to_owned(), (2, 20), "9999 is the greatest"),
        ("# c\ncluster raft nodes=x\n".to_owned(), (2, 20), "expected how many (nodes=5), or which (nodes=1,3,7), found 'x'"),
        ("# c\ncluster raft nodes=5 guard=2\n".to_owned(), (2, 28), "between 3 and 5"),
        ("# c\ncluster raft guard=maybe\n".to_owned(), (2, 20), "expected on, off, or the size of the quorum, found 'maybe'"),
        ("# c\ncluster raft patience=3s..1s\n".to_owned(), (2, 23), "exchange them, or raise the second"),
        ("# c\ncluster raft patience=3s\n".to_owned(), (2, 23), "expected two times such as 150ms..300ms, found '3s'"),
        ("# c\ncluster raft heartbeat=1s\n".to_owned(), (2, 24), "two must fit; lower heartbeat or raise patience-min"),
        ("# c\ncluster raft drift=200000ppm\n".to_owned(), (2, 20), "it must be below 100000"),
        ("# c\ncluster ring ring=1,2\n".to_owned(), (2, 19), "every member exactly once"),
        ("# c\ncluster raft ring=1,2,3\n".to_owned(), (2, 19), "'ring' means nothing to raft, only to ring and chang-roberts"),
        ("# c\ncluster bully takeover=soon\n".to_owned(), (2, 24), "expected at-once or when-free, found 'soon'"),
        ("# c\ncluster raft priority=1:2,9:1\n".to_owned(), (2, 27), "node 9 is no member: the cluster has 1 2 3"),
        ("# c\ncluster raft loss=101%\n".to_owned(), (2, 19), "expected a share between 0% and 100%"),
        ("# c\ncluster raft delay=9ms..1ms\n".to_owned(), (2, 20), "expected a time (5ms), a range (1ms..10ms)"),
        (block("cluster raft"), (3, 1), "a scenario has one cluster"),
        (block("crush 3"), (3, 1), "unknown command 'crush': it is one of run, show, expect, crash"),
        (block("crash"), (3, 7), "expected a node, found the end of the line"),
        (block("  crash x"), (3, 9), "expected the number of a node, found 'x'"),
        (block("crash 4"), (3, 7), "node 4 is no member: the cluster has 1 2 3"),
        (block("crash 3 2"), (3, 9), "expected the end of the line, found '2'"),
        (block("cut 1 > 1"), (3, 9), "expected a node other than 1, found '1'"),
        (block("cut"), (3, 5), "expected 'all' or the nodes of a link, found the end of the line"),
        (block("partition 1 | | 2"), (3, 15), "expected a node, found '|'"),
        (block("partition 1 2 |"), (3, 17), "expected a node, found the end of the line"),
        (block("partition 1 2 | 2"), (3, 17), "node 2 is in two groups"),
        (block("chain 1 2 1"), (3, 11), "node 1 stands twice in the chain"),
        (block("flap 1 2"), (3, 10), "expected a time such as 300ms, found the end of the line"),
        (block("flap 1 2 0ms"), (3, 10), "at least 2ns"),
        (block("loss all 30"), (3, 10), "expected a share between 0% and 100%, such as 30% or 0.5%, found '30'"),
        (block("delay all 9ms to 1ms"), (3, 15), "exchange them"),
        (block("clock 1 faster"), (3, 9), "expected rate, jump or freeze, found 'faster'"),
        (block("clock 1 rate fast"), (3, 14), "expected parts per million such as +400ppm, found 'fast'"),
        (block("disk 1 broken"), (3, 8), "expected slow, stall or normal, found 'broken'"),
        (block("reset-storm 20ms many"), (3, 18), "expected how many times, found 'many'"),
        (block("reset-storm 20ms 100000 times"), (3, 18), "at most 10000"),
        (block("run"), (3, 5), "expected 'until' or a time such as 2s, found the end of the line"),
        (block("run 2"), (3, 5), "expected a time of at most a day, such as 300ms (units: s, ms, us, ns), found '2'"),
        (block("run until lunch"), (3, 11), "expected leader, no leader, agreed or contest, found 'lunch'"),
        (block("run until leader within"), (3, 25), "expected a time such as 300ms, found the end of the line"),
        (block("show everything"), (3, 6), "expected messages, leader, nodes, counts or office, found 'everything'"),
        (block("show messages maybe"), (3, 15), "expected on, all or off, found 'maybe'"),
        (block("expect nothing"), (3, 8), "expected leader, no leader, two leaders, never two leaders, agreed or term"),
        (block("expect no two"), (3, 11), "expected 'leader', found 'two'"),
        (
            format!("{cluster}run 2s\n"),
            (3, 1),
            "expected '----' and the trace behind the last command, found the end of the file",
        ),
        (format!("{cluster}run 2s\n----\nt=1 a\n\nt=2 b\n"), (7, 1), "a trace stands behind '----' and has no blank line in it"),
    ] {
        let mistake = scenario::parse("test.txt", &text).expect_err(&text);
        assert!(mistake.what.contains(says), "{text:?}\nsays: {mistake}\nnot: {says}");
        assert_eq!((mistake.line, mistake.column), place, "{mistake}");
        assert!(mistake.to_string().ends_with(&"^".repeat(mistake.width)), "{mistake}");
    }
}

#[test]
fn a_mistake_is_shown_with_its_line_and_a_caret() {
    let mistake = scenario::parse("a.txt", "# c\ncluster raft\n  crash four\n----\n").unwrap_err();
    assert_eq!(
        mistake.to_string(),
        "a.txt:3:9: expected the number of a node, found 'four'\n 3 |   crash four\n   |         ^^^^"
    );
}

#[test]
fn every_option_of_a_cluster_reaches_the_world() {
    let ms = Duration::from_millis;
    let line = "cluster ring nodes=2,4,6 seed=9 guard=3 prevote=off detection=adaptive ring=4,2,6 pace=wan heartbeat=100ms patience=1s..2s \
                reply=70ms drift=200ppm margin=9ms tenure=3s aside=1s..4s delay=1ms..10ms loss=5% duplicate=6% reorder=7%/20ms refusals=heard \
                disk=2ms+1ms clocks=100ppm user=never";
    let world = scenario::parse("test.txt", &format!("# c\n{line}\n")).unwrap_or_else(|mistake| panic!("{mistake}")).world;
    let (settings, quality) = (&world.settings, &world.network.quality);
    assert_eq!((world.kind, world.seed), (Kind::Ring, 9));
    assert_eq!(settings.members(), [2, 4, 6].map(NodeId));
    assert_eq!(settings.ring(), [4, 2, 6].map(NodeId));
    assert_eq!(settings.quorum(), Some(3));
    assert_eq!((settings.pre_vote(), settings.detection()), (PreVote::Off, Detection::Adaptive));
    let pace =
        Pace { heartbeat: ms(100), patience_min: ms(1000), patience_max: ms(2000), reply: ms(70), drift_ppm: 200, margin: ms(9) };
    assert_eq!(*settings.pace(), pace);
    assert_eq!(*settings.stability(), Stability { min_tenure: ms(3000), aside_min: ms(1000), aside_max: ms(4000) });
    assert_eq!(quality.delay, Delay::Uniform { min: ms(1), max: ms(10) });
    assert_eq!((quality.loss_ppm, quality.duplicate_ppm), (50_000, 60_000));
    assert_eq!((quality.reorder_ppm, quality.reorder), (70_000, ms(20)));
    assert_eq!(world.network.refusal, Refusal::Heard);
    assert_eq!(world.disk.latency, Delay::Tail { base: ms(2), mean: ms(1) });
    assert_eq!((world.clocks, world.obliges), (ClockSettings::within(100), None));

    let world = scenario::parse("test.txt", "# c\ncluster bully takeover=when-free user=5ms\n").unwrap().world;
    assert_eq!((world.settings.takeover(), world.obliges), (Takeover::WhenFree, Some(Delay::Constant(ms(5)))));
    let world = scenario::parse("test.txt", "# c\ncluster raft priority=3:2,1:1 guard=off pace=wan\n").unwrap().world;
    assert_eq!([1, 2, 3].map(|id| world.settings.priority(NodeId(id))), [1, 0, 2]);
    assert_eq!((world.settings.quorum(), *world.settings.pace()), (None, Pace::WAN));
}

#[test]
fn what_a_fault_prints_is_what_a_scenario_reads() {
    let (ms, n) = (Duration::from_millis, NodeId);
    let between = Links::Between(n(1), n(2));
    let one_way = Links::OneWay { from: n(2), to: n(3) };
    let request = |request| Fault::Request { node: n(1), request };
    for fault in [
        Fault::Crash(n(1)),
        Fault::Restart(n(2)),
        Fault::Pause(n(3)),
        Fault::Resume(n(1)),
        Fault::Slow { node: n(2), by: ms(20) },
        Fault::Cut(between),
        Fault::Cut(one_way),
        Fault::Cut(Links::All),
        Fault::Mend(Links::All),
        Fault::Flap { links: between, period: ms(300) },
        Fault::Partition(vec![vec![n(1), n(2)], vec![n(3)]]),
        Fault::Isolate(n(3)),
        Fault::Rejoin(n(3)),
        Fault::Delay { links: Links::All, delay: Delay::Constant(ms(5)) },
        Fault::Delay { links: one_way, delay: Delay::Uniform { min: ms(1), max: ms(20) } },
        Fault::Delay { links: Links::All, delay: Delay::Tail { base: Duration::from_micros(200), mean: ms(1) } },
        Fault::Spikes { links: Links::All, ppm: 10_000, by: ms(200) },
        Fault::Loss { links: between, ppm: 500 },
        Fault::Duplicate { links: Links::All, ppm: 500_000 },
        Fault::Reorder { links: Links::All, ppm: 100_000, by: ms(50) },
        Fault::ClockRate { node: n(2), ppm: 400 },
        Fault::ClockRate { node: n(2), ppm: -400 },
        Fault::ClockJump { node: n(2), by: Duration::from_secs(5) },
        Fault::ClockFreeze { node: n(2), lasting: ms(100) },
        Fault::DiskSlow { node: n(3), by: ms(30) },
        Fault::DiskStall(n(3)),
        Fault::DiskNormal(n(3)),
        request(Request::Campaign),
        request(Request::Resign),
        request(Request::HandOver { to: n(2) }),
        request(Request::Suspect { peer: n(2) }),
        request(Request::Dead { peer: n(2) }),
        Fault::ResetStorm { every: ms(20), times: 50 },
        Fault::Heal,
    ] {
        let scenario = with(&format!("{fault}\n----"));
        let read: Vec<&Command> = scenario.steps().map(|step| &step.command).collect();
        assert_eq!(read, [&Command::Inject(vec![fault.clone()])], "{fault}");
    }
}

#[test]
fn a_star_and_a_chain_are_cuts() {
    let reached = |line: &str| {
        let text = format!("# c\ncluster raft nodes=5\n{line}\n----\n");
        let outcome = scenario::run(&scenario::parse("test.txt", &text).unwrap());
        let network = &outcome.acts[0].network;
        let pairs = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)));
        pairs.filter(|&(a, b)| network.carries(a, b, outcome.end)).map(|(a, b)| (a + 1, b + 1)).collect::<Vec<_>>()
    };
    assert_eq!(reached("star 3"), [(1, 3), (2, 3), (3, 4), (3, 5)]);
    assert_eq!(reached("chain 1 2 3 4 5"), [(1, 2), (2, 3), (3, 4), (4, 5)]);
    assert_eq!(reached("chain 4 1 5"), [(1, 4), (1, 5)]);
    assert_eq!(reached("run 1ms").len(), 10);
}

#[test]
fn what_is_expected_and_not_so_fails_with_its_line_and_says_what_is_so() {
    for (lines, says) in [
        ("expect leader\n----", "test.txt:3: expected 'leader' at 0.000; no leader"),
        ("run until agreed\nexpect no leader\n----", "test.txt:4: expected 'no leader' at "),
        ("run until agreed\nexpect term 9\n----", "the greatest term is 1"),
        ("run until agreed\nexpect two leaders\n----", "expected 'two leaders'"),
        ("crash 1\ncrash 2\nrun until leader within 1s\n----", "test.txt:5: expected 'leader' within 1s; no leader"),
        ("cut all\nexpect agreed\n----", "1 follower term=0; 2 follower term=0; 3 follower term=0"),
    ] {
        let outcome = scenario::run(&with(lines));
        let failures: Vec<String> = outcome.failures.iter().map(|failure| failure.in_file("test.txt")).collect();
        assert_eq!(failures.len(), 1, "{lines:?}: {failures:?}");
        assert!(failures[0].contains(says), "{lines:?}: {failures:?}");
    }
}

#[test]
fn oracles_watch_every_scenario() {
    // A leader that is said to be dead and is only cut off: its voters are freed too soon. A scenario that lies is found out.
    let outcome = scenario::run(&with("run until agreed\nexpect leader 1\ncut 1\ndead 2 1\ndead 3 1\nrun 500ms\n----"));
    let [failure] = &outcome.failures[..] else { panic!("{:?}", outcome.failures) };
    assert!(failure.what.contains("violated: t=0.196") && failure.what.contains("one_leader_at_a_time"), "{failure:?}");
    assert_eq!(failure.line, None);
}

#[test]
fn calm_is_demanded_after_the_last_healing_and_not_before() {
    let leaderless = |lines: &str| {
        let outcome = scenario::run(&with(lines));
        assert_eq!(outcome.failures, [], "{lines}");
        outcome.sometimes.counts().find(|(oracle, _, _)| *oracle == "liveness").map(|(_, _, count)| count)
    };
    let cut_off = "run until agreed\ncut all\nrun 1s\nheal\nrun 20s";
    assert_eq!(leaderless(&format!("{cut_off}\n----")), Some(1));
    // What happens to the leader then would break the calm that was demanded, had the first healing been the last.
    assert_eq!(leaderless(&format!("{cut_off}\ncrash 1\ncrash 2\ncrash 3\nrun 1s\n----")), Some(0));
}

#[test]
fn a_run_that_fills_the_memory_is_ended() {
    let scenario = with("run until agreed\nrun 86400s\n----");
    let outcome = scenario::run(&scenario);
    assert!(outcome.failures[0].what.contains("run shorter"), "{:?}", outcome.failures);
}

#[test]
fn whatever_stands_in_a_file_is_read_or_refused_but_never_a_panic() {
    let root = root();
    let texts: Vec<String> = files().iter().map(|file| fs::read_to_string(root.join(file)).unwrap()).collect();
    let pieces: Vec<&str> = texts.iter().flat_map(|text| text.split_inclusive([' ', '=', '\n', ',', '.'])).collect();
    let odd = ["0", "-1", "99999999999999999999", "\u{e9}", "\t", "%", "|", ">", "ms", "1e9s", "..", "----\n", "\n\n", "\0"];
    let mut chance = Chance::new(1);
    let mut draw = |count: usize| chance.below(count as u64) as usize;
    let (mut read, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let text = &texts[draw(texts.len())];
        let mut words: Vec<&str> = text.split_inclusive([' ', '=', '\n', ',', '.']).collect();
        for _ in 0..=draw(3) {
            let at = draw(words.len());
            words[at] = if draw(2) == 0 { odd[draw(odd.len())] } else { pieces[draw(pieces.len())] };
        }
        match scenario::parse("mutated.txt", &words.concat()) {
            Ok(_) => read += 1,
            Err(mistake) => {
                refused += 1;
                assert!(!mistake.to_string().is_empty());
            }
        }
    }
    assert!(read > 1_000 && refused > 1_000, "{read} {refused}");
}

#[test]
fn rewriting_changes_the_traces_and_nothing_else() {
    let text = "# a test\n\ncluster raft nodes=3 seed=7\nrun until agreed\n----\nwrong\nalso wrong\n\n# why\ncrash 1\n----\n\nshow leader\n----\nalso wrong\n";
    let before = scenario::parse("test.txt", text).unwrap();
    let outcome = scenario::run(&before);
    assert_eq!(outcome.differences(&before).len(), 2);
    let rewritten = outcome.rewritten(&before);
    let after = scenario::parse("test.txt", &rewritten).unwrap();
    assert!(scenario::run(&after).differences(&after).is_empty(), "{rewritten}");
    let kept = |text: &str| {
        text.lines()
            .filter(|line| !line.contains("term=") && !line.contains("wrong") && *line != "no leader")
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(kept(text), kept(&rewritten));
    assert_eq!(scenario::run(&after).rewritten(&after), rewritten);
}
