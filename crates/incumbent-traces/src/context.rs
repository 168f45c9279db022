//! Which trace a span belongs to, as programs tell each other: the W3C's header `traceparent`.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A span as others refer to it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Context {
    /// The trace; not 0.
    pub trace: u128,
    /// The span; not 0.
    pub span: u64,
    /// Whether it is told to a collector. One that is not has no children that are.
    pub is_told: bool,
}

impl Context {
    /// The header's value, written `VERSION-TRACE-SPAN-FLAGS` in lower-case hexadecimal digits. `None` if it cannot be read: then it is as if there were none, as the W3C has it.
    pub fn parse(header: &str) -> Option<Context> {
        let mut parts = header.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = digits(version, 2)?;
        // A later version may have more behind it; 255 is none.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, span, flags) = (digits(trace, 32)?, digits(span, 16)?, digits(flags, 2)?);
        let (span, is_told) = (u64::try_from(span).ok()?, flags & 1 == 1);
        (trace != 0 && span != 0).then_some(Context { trace, span, is_told })
    }
}

/// As the header has it.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_told))
    }
}

fn digits(text: &str, count: usize) -> Option<u128> {
    let fits = text.len() == count && text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    if fits { u128::from_str_radix(text, 16).ok() } else { None }
}

/// How many of all traces are told. The number of a trace decides, as other programs do it too: so those who decide alike tell the same ones.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Share(u64);

impl Share {
    /// Of the numbers below it, halved, all are told.
    const WHOLE: u64 = 1 << 63;

    pub(crate) const ALL: Share = Share(Share::WHOLE);

    /// From 0, none, to 1, all. `None` if it is no share.
    pub(crate) fn of(ratio: f64) -> Option<Share> {
        (0.0..=1.0).contains(&ratio).then_some(Share((ratio * Share::WHOLE as f64) as u64))
    }

    pub(crate) fn takes(self, trace: u128) -> bool {
        (trace as u64 >> 1) < self.0
    }
}

/// Numbers that look like chance and do not repeat in a process; those of two processes differ with all likelihood. They are no secrets.
#[derive(Debug)]
pub(crate) struct Ids {
    /// The upper half of all traces of this process is made from it.
    own: u64,
    next: AtomicU64,
}

impl Ids {
    pub(crate) fn new() -> Ids {
        let chance = || RandomState::new().build_hasher().finish();
        Ids { own: chance(), next: AtomicU64::new(chance()) }
    }

    pub(crate) fn trace(&self) -> u128 {
        let low = self.span();
        u128::from(mix(self.own ^ low)) << 64 | u128::from(low)
    }

    /// Not 0.
    pub(crate) fn span(&self) -> u64 {
        loop {
            // SplitMix64: an odd step comes to every number once before any twice, and mixing loses none.
            let id = mix(self.next.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed));
            if id != 0 {
                return id;
            }
        }
    }
}

fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_as_it_is_written() {
        let context = Context::parse(GOOD).unwrap();
        assert_eq!(context.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((context.span, context.is_told), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.to_string(), GOOD);
        assert!(!Context::parse(&GOOD.replace("-01", "-00")).unwrap().is_told);
        assert!(Context::parse(&format!("cc{}-more", &GOOD[2..])).is_some(), "a later version");
    }

    #[test]
    fn what_is_none_is_as_if_it_were_not_there() {
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_span = GOOD.replace("00f067aa0ba902b7", "0000000000000000");
        let (upper, longer, none) = (GOOD.to_uppercase(), format!("{GOOD}-more"), format!("ff{}", &GOOD[2..]));
        for bad in ["", "00", "-", &GOOD[..54], &zero_trace, &zero_span, &upper, &longer, &none, "00-+f-1-1", "ü-ü-ü-ü"] {
            assert_eq!(Context::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_share_of_the_traces_is_taken_and_always_the_same() {
        let ids = Ids::new();
        let traces: Vec<u128> = (0..100_000).map(|_| ids.trace()).collect();
        let taken = |ratio| traces.iter().filter(|it| Share::of(ratio).unwrap().takes(**it)).count();
        assert_eq!((taken(0.0), taken(1.0)), (0, traces.len()));
        let (tenth, half) = (taken(0.1), taken(0.5));
        assert!((9_000..11_000).contains(&tenth) && (48_000..52_000).contains(&half), "{tenth} {half}");
        let both = traces.iter().filter(|it| Share::of(0.1).unwrap().takes(**it) && Share::of(0.5).unwrap().takes(**it)).count();
        assert_eq!(both, tenth, "who tells more tells these too");
        assert!([-0.1, 1.1, f64::NAN, f64::INFINITY].into_iter().all(|it| Share::of(it).is_none()));
    }

    #[test]
    fn ids_do_not_repeat() {
        let ids = Ids::new();
        let some: std::collections::BTreeSet<u64> = (0..10_000).map(|_| ids.span()).collect();
        assert_eq!(some.len(), 10_000);
        assert_ne!(ids.trace(), ids.trace());
    }
}
