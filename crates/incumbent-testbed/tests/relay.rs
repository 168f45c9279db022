//! Each fault of the relay does what it says, before a server that echoes and before a real one.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use incumbent_testbed::{Direction, Redis, Relay, Server as _, Verdict, Way};

/// A server that sends every line back, and tells the test which lines and ends it saw.
fn echo() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (saw, seen) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, saw) = (stream.unwrap(), saw.clone());
            std::thread::spawn(move || {
                for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
                    let _ = saw.send(line.clone());
                    let _ = stream.write_all(format!("{line}\n").as_bytes());
                }
                let _ = saw.send("the end".into());
            });
        }
    });
    (address, seen)
}

struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn of(relay: &Relay) -> Client {
        let stream = TcpStream::connect(relay.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    fn say(&mut self, line: &str) {
        self.reader.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next line; empty if the connection has ended.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(_) => line.trim_end().to_owned(),
            Err(wrong) if wrong.kind() == ErrorKind::ConnectionReset => String::new(),
            Err(wrong) => panic!("{wrong}"),
        }
    }

    /// Whether something has come by now.
    fn has_heard(&mut self) -> bool {
        let stream = self.reader.get_mut();
        stream.set_nonblocking(true).unwrap();
        let heard = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).unwrap();
        heard
    }
}

#[test]
fn what_is_not_disturbed_passes_and_is_counted() {
    let (server, seen) = echo();
    let relay = Relay::before(&server).unwrap();
    let mut client = Client::of(&relay);
    client.say("hello");
    assert_eq!(client.hear(), "hello");
    drop(client);
    let traffic = relay.wait_until("the connection has ended", |traffic| traffic.connections == 1 && traffic.open == 0);
    assert_eq!((traffic.requests.arrived, traffic.requests.passed, traffic.replies.passed), (6, 6, 6));
    assert_eq!((traffic.requests.lost, traffic.requests.held(), traffic.requests.chunks), (0, 0, 1));
    assert_eq!(seen.iter().take(2).collect::<Vec<_>>(), ["hello", "the end"]);
}

#[test]
fn a_lost_request_never_arrives_and_its_connection_ends_with_the_fault() {
    let (server, seen) = echo();
    let relay = Relay::before(&server).unwrap();
    let mut client = Client::of(&relay);
    client.say("first");
    assert_eq!(client.hear(), "first");
    relay.requests(Way::Lose);
    client.say("second");
    relay.wait_until("it is lost", |traffic| traffic.requests.lost == 7);
    relay.heal();
    assert_eq!(client.hear(), "", "a stream with a hole is none");
    assert_eq!(seen.iter().take(2).collect::<Vec<_>>(), ["first", "the end"]);
    let mut client = Client::of(&relay);
    client.say("third");
    assert_eq!(client.hear(), "third");
    assert_eq!(seen.recv().unwrap(), "third");
}

#[test]
fn a_lost_reply_belongs_to_a_request_that_arrived() {
    let (server, seen) = echo();
    let relay = Relay::before(&server).unwrap();
    let mut client = Client::of(&relay);
    relay.replies(Way::Lose);
    client.say("applied");
    assert_eq!(seen.recv().unwrap(), "applied");
    relay.wait_until("the reply is lost", |traffic| traffic.replies.lost == 8);
    assert!(!client.has_heard());
    relay.replies(Way::Pass);
    assert_eq!(client.hear(), "");
}

#[test]
fn who_is_cut_off_does_not_hear_the_other_end() {
    let (server, seen) = echo();
    let relay = Relay::before(&server).unwrap();
    let mut client = Client::of(&relay);
    client.say("hello");
    assert_eq!((client.hear().as_str(), seen.recv().unwrap().as_str()), ("hello", "hello"));
    relay.partition();
    client.say("later");
    relay.wait_until("it is held", |traffic| traffic.requests.held() == 6);
    drop(client);
    assert!(seen.try_recv().is_err());
    // TCP sends again what was lost, and only then the end.
    relay.heal();
    assert_eq!(seen.iter().take(2).collect::<Vec<_>>(), ["later", "the end"]);
    relay.wait_until("it is forgotten", |traffic| traffic.open == 0);
}

#[test]
fn held_replies_arrive_when_told() {
    let (server, seen) = echo();
    let relay = Relay::before(&server).unwrap();
    let mut client = Client::of(&relay);
    relay.replies(Way::Hold);
    client.say("one");
    client.say("two");
    assert_eq!(seen.iter().take(2).collect::<Vec<_>>(), ["one", "two"]);
    relay.wait_until("both replies are held", |traffic| traffic.replies.held() == 8);
    assert!(!client.has_heard());
    relay.replies(Way::Pass);
    assert_eq!([client.hear(), client.hear()], ["one", "two"]);
}

#[test]
fn a_delay_is_that_of_one_way_and_does_not_add_up() {
    let (server, seen) = echo();
    let relay = Relay::before(&server).unwrap();
    let mut client = Client::of(&relay);
    const LINES: [&str; 5] = ["one", "two", "three", "four", "five"];
    let delay = Duration::from_millis(400);
    relay.replies(Way::Delay(delay));
    let began = Instant::now();
    for line in LINES {
        client.say(line);
        assert_eq!(seen.recv().unwrap(), line);
    }
    for line in LINES {
        assert_eq!(client.hear(), line);
    }
    let took = began.elapsed();
    assert!(took >= delay, "{took:?}");
    assert!(took < 4 * delay, "one after the other they would take five times as long as one, and these took {took:?}");
    relay.replies(Way::Delay(Duration::from_secs(3600)));
    client.say("last");
    relay.wait_until("it is under way", |traffic| traffic.replies.held() == 5);
    relay.heal();
    assert_eq!(client.hear(), "last", "a way that is open lets pass what was delayed");
}

#[test]
fn a_cut_ends_all_and_refuses_until_healed() {
    let (server, seen) = echo();
    let relay = Relay::before(&server).unwrap();
    let mut client = Client::of(&relay);
    client.say("hello");
    assert_eq!((client.hear().as_str(), seen.recv().unwrap().as_str()), ("hello", "hello"));
    relay.cut();
    assert_eq!(client.hear(), "");
    assert_eq!(seen.recv().unwrap(), "the end");
    assert_eq!(TcpStream::connect(relay.address()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    relay.cut();
    relay.heal();
    let mut client = Client::of(&relay);
    client.say("again");
    assert_eq!(client.hear(), "again");
    relay.disconnect();
    assert_eq!(client.hear(), "");
    let mut client = Client::of(&relay);
    client.say("at once");
    assert_eq!(client.hear(), "at once");
}

#[test]
fn a_connection_made_while_requests_do_not_pass_never_reaches_the_server() {
    let (server, seen) = echo();
    let relay = Relay::before(&server).unwrap();
    relay.requests(Way::Hold);
    let mut client = Client::of(&relay);
    client.say("hello");
    relay.wait_until("it is let in", |traffic| traffic.open == 1);
    relay.requests(Way::Pass);
    assert_eq!(client.hear(), "");
    relay.wait_until("it is forgotten", |traffic| traffic.open == 0);
    assert!(seen.try_recv().is_err());
}

#[test]
fn an_inspector_sees_all_and_can_end_a_connection_between_request_and_reply() {
    let (server, seen) = echo();
    let relay = Relay::before(&server).unwrap();
    let (saw, inspected) = channel();
    relay.inspect(move |chunk| {
        saw.send((chunk.connection, chunk.direction, String::from_utf8_lossy(chunk.bytes).into_owned())).unwrap();
        match chunk.direction {
            Direction::Reply if chunk.bytes == b"fatal\n" => Verdict::Disconnect,
            Direction::Request if chunk.bytes == b"secret\n" => Verdict::Lose,
            Direction::Request | Direction::Reply => Verdict::Pass,
        }
    });
    let mut client = Client::of(&relay);
    client.say("fatal");
    assert_eq!(client.hear(), "");
    assert_eq!(seen.recv().unwrap(), "fatal");
    let fatal = |direction| (1, direction, "fatal\n".to_owned());
    assert_eq!([inspected.recv().unwrap(), inspected.recv().unwrap()], [fatal(Direction::Request), fatal(Direction::Reply)]);

    let mut client = Client::of(&relay);
    client.say("secret");
    relay.wait_until("it is lost", |traffic| traffic.requests.lost == 7);
    client.say("what follows");
    relay.wait_until("that too", |traffic| traffic.requests.lost == 20);
    relay.heal();
    assert_eq!(client.hear(), "");
}

#[test]
fn a_reset_is_one_for_both_sides_and_new_connections_are_let_in() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = Relay::before(&server.local_addr().unwrap().to_string()).unwrap();
    let mut client = TcpStream::connect(relay.address()).unwrap();
    let (mut accepted, _) = server.accept().unwrap();
    relay.wait_until("it is connected", |traffic| traffic.open == 1);
    relay.reset();
    for side in [&mut client, &mut accepted] {
        assert_eq!(side.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    let _again = TcpStream::connect(relay.address()).unwrap();
    server.accept().unwrap();
}

#[test]
fn what_is_lost_comes_late_and_in_order() {
    let (server, _) = echo();
    let relay = Relay::before(&server).unwrap();
    let again = Duration::from_millis(5);
    relay.requests(Way::Lossy { percent: 100, again });
    let mut client = Client::of(&relay);
    let began = Instant::now();
    client.say("first");
    client.say("second");
    assert_eq!(client.hear(), "first");
    assert!(began.elapsed() >= again * 63, "six times in vain: {:?}", began.elapsed());
    assert_eq!(client.hear(), "second");
}

#[test]
fn after_a_failover_new_connections_lead_elsewhere() {
    let ((old, _), (new, seen)) = (echo(), echo());
    let relay = Relay::before(&old).unwrap();
    let mut client = Client::of(&relay);
    client.say("old");
    assert_eq!(client.hear(), "old");
    relay.retarget(&new);
    relay.disconnect();
    let mut client = Client::of(&relay);
    client.say("new");
    assert_eq!((client.hear().as_str(), seen.recv().unwrap().as_str()), ("new", "new"));
}

#[test]
fn a_server_that_is_down_is_a_connection_that_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let relay = Relay::before(&address).unwrap();
    assert_eq!(Client::of(&relay).hear(), "");
    assert!(Relay::before("no address").err().unwrap().contains("no address"));
}

#[test]
fn much_goes_through_in_order() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = Relay::before(&listener.local_addr().unwrap().to_string()).unwrap();
    let bytes: Vec<u8> = (0..20_000_000u32).map(|number| (number % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| TcpStream::connect(relay.address()).unwrap().write_all(&bytes).unwrap());
        let mut arrived = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut arrived).unwrap();
        assert!(arrived == bytes);
    });
}

#[test]
fn before_a_real_server_a_lost_reply_has_been_applied_and_a_lost_request_has_not() {
    let redis = Redis::debian().start().unwrap();
    let relay = Relay::before(&redis.address()).unwrap();
    let mut client = Client::of(&relay);
    client.say("INCR seat");
    assert_eq!(client.hear(), ":1");
    relay.replies(Way::Lose);
    client.say("INCR seat");
    relay.wait_until("the reply is lost", |traffic| traffic.replies.lost > 0);
    assert_eq!(redis.command(&["GET", "seat"]).unwrap(), "2");
    relay.heal();
    let mut client = Client::of(&relay);
    relay.wait_until("it is there", |traffic| traffic.connections == 2);
    relay.requests(Way::Lose);
    client.say("INCR seat");
    relay.wait_until("the request is lost", |traffic| traffic.requests.lost > 0);
    assert_eq!(redis.command(&["GET", "seat"]).unwrap(), "2");
}
