//! Servers that have a shortest lease of their own grant that instead of less, without a word.

use std::time::Duration;

/// Says once for each lease or session that a seat is kept for longer than was asked for, and what decides that.
pub(super) fn say_if_stretched(engine: &str, asked: Duration, granted: Duration, decided_by: &str) {
    if is_stretched(asked, granted) {
        tracing::warn!(
            "{engine} keeps a seat for {granted:?} at least, and not for {asked:?} as was asked: whoever dies is replaced that much later; ask for as much, or lower {decided_by}"
        );
    }
}

/// By more than it takes to count in whole seconds, or in ticks.
fn is_stretched(asked: Duration, granted: Duration) -> bool {
    let whole = Duration::from_secs(asked.as_secs() + u64::from(asked.subsec_nanos() > 0));
    granted > whole + asked / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rounded_up_is_not_stretched() {
        let (ms, second) = (Duration::from_millis, Duration::from_secs(1));
        assert!(!is_stretched(ms(1200), second * 2) && !is_stretched(second * 10, ms(10_900)) && !is_stretched(second, second));
        assert!(is_stretched(second, second * 2) && is_stretched(ms(100), ms(2500)));
    }
}
