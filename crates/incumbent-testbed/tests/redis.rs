//! Redis and Valkey start, answer, restart with their data, count what they are asked, and replicate.

use incumbent_testbed::{Redis, RedisPlan, Server as _, Shared};

fn keeps_its_word(plan: &RedisPlan) {
    let redis = plan.start().unwrap();
    redis.command(&["SET", "seat", "taken"]).unwrap();
    let before = redis.requests().unwrap();
    assert_eq!(redis.command(&["GET", "seat"]).unwrap(), "taken");
    let asked = redis.requests().unwrap().since(&before);
    assert_eq!((asked.of("get"), asked.total()), (1, 1), "{asked:?}");

    let port = redis.port();
    redis.kill();
    assert!(redis.command(&["GET", "seat"]).is_err());
    redis.restart().unwrap();
    assert_eq!((redis.port(), redis.command(&["GET", "seat"]).unwrap().as_str()), (port, "taken"));
    redis.restart().unwrap();
    assert_eq!(redis.command(&["GET", "seat"]).unwrap(), "taken");
}

#[test]
fn debians_redis_keeps_its_word() {
    keeps_its_word(&Redis::debian());
}

#[test]
fn valkey_with_a_password_keeps_its_word() {
    keeps_its_word(&Redis::valkey().password("open-sesame"));
}

#[test]
fn a_replica_can_be_promoted() {
    let primary = Redis::debian().password("open-sesame").start().unwrap();
    let replica = Redis::debian().password("open-sesame").replica_of("127.0.0.1", primary.port()).start().unwrap();
    replica.wait_until_it_follows().unwrap();
    primary.command(&["SET", "seat", "taken"]).unwrap();
    // A replica acknowledges once a second, and later on a busy machine.
    assert_eq!(primary.command(&["WAIT", "1", "30000"]).unwrap(), "1");
    primary.kill();
    assert!(replica.command(&["SET", "seat", "free"]).is_err(), "a replica takes no writes");
    replica.promote().unwrap();
    assert_eq!(replica.command(&["GET", "seat"]).unwrap(), "taken");
    replica.command(&["SET", "seat", "free"]).unwrap();
}

#[test]
fn what_cannot_start_is_an_error_with_the_end_of_its_log() {
    // A line break ends the setting, and what follows is none.
    let wrong = Redis::debian().password("x\nno-such-setting yes").start().err().unwrap();
    assert!(wrong.contains("no-such-setting"), "{wrong}");
}

#[test]
fn a_shared_server_is_started_once() {
    static REDIS: Shared<Redis> = Shared::new(|| Redis::debian().start());
    let ports: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| REDIS.server().port())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
}
