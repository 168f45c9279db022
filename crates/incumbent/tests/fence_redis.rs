//! The fence in Lua, on a real Redis and a real Valkey.

use incumbent::fence::redis::{ADMIT, SET, STALE};
use incumbent_testbed::{Redis, RedisPlan, Server as _};

fn set(redis: &Redis, token: &str, value: &str) -> Result<String, String> {
    redis.command(&["EVAL", SET, "2", "{b}:fence", "{b}:total", token, value])
}

fn fences(plan: &RedisPlan) {
    let redis = plan.start().unwrap();
    // Beyond 2^53 two neighbours are the same number to Lua.
    let (old, new) = ("9007199254740992", "9007199254740993");
    set(&redis, "7", "a").unwrap();
    set(&redis, old, "b").unwrap();
    set(&redis, old, "c").unwrap();
    redis.command(&["EVAL", ADMIT, "1", "{b}:fence", new]).unwrap();
    for late in [old, "7", "999"] {
        let why = set(&redis, late, "late").unwrap_err();
        assert!(why.starts_with(STALE) && why.contains(&format!("token {late} for {{b}}:fence: {new} has been seen")), "{why}");
    }
    assert_eq!(redis.command(&["GET", "{b}:total"]).unwrap(), "c");
    set(&redis, new, "d").unwrap();
    for odd in ["", "x", "-1", "1.5", "07", "1e3", "18446744073709551616"] {
        assert!(set(&redis, odd, "odd").unwrap_err().contains("is no token"), "{odd:?}");
    }
    redis.kill();
    redis.restart().unwrap();
    assert!(set(&redis, old, "late").unwrap_err().starts_with(STALE), "it remembers across a restart");
    assert_eq!(redis.command(&["GET", "{b}:total"]).unwrap(), "d");
}

#[test]
fn redis_refuses_stale_tokens() {
    fences(&Redis::debian());
}

#[test]
fn valkey_refuses_stale_tokens() {
    fences(&Redis::valkey());
}

#[cfg(feature = "fence-redis")]
#[tokio::test]
async fn the_wrapper_tells_a_stale_token_from_trouble() {
    use std::sync::Arc;

    use incumbent::engine::Kind;
    use incumbent::fence::redis::Guarded;
    use incumbent::fence::{Refusal, token};
    use incumbent::metrics::Metrics;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    let of = |number| token(number).expect("fits");
    let redis = Redis::debian().start().unwrap();
    let client = redis::Client::open(format!("redis://{}", redis.address())).unwrap();
    let mut figures = Registry::default();
    let guarded = Guarded::at(client.get_multiplexed_async_connection().await.unwrap(), "{b}: fence")
        .metrics(Arc::new(Metrics::register(&mut figures)));
    guarded.set(of(1), "{b}:total", "first").await.unwrap();
    guarded.admit(of(1 << 60)).await.unwrap();
    let refusal = guarded.set(of((1 << 60) - 1), "{b}:total", "late").await.unwrap_err();
    assert_eq!(refusal.stale().map(|it| it.seen), Some(of(1 << 60)), "{refusal:?}");
    let mut text = String::new();
    encode(&mut text, &figures).unwrap();
    assert!(text.contains("incumbent_fence_refusals_total{resource=\"{b}: fence\"} 1\n"), "{text}");
    assert_eq!(redis.command(&["GET", "{b}:total"]).unwrap(), "first");
    guarded.set(of(1 << 60), "{b}:total", vec![0_u8, 255]).await.unwrap();
    redis.kill();
    match guarded.set(of(1 << 60), "{b}:total", "x").await {
        Err(Refusal::Trouble(why)) => assert_eq!(why.kind(), Kind::Unknown, "{why}"),
        other => panic!("{other:?}"),
    }
}
