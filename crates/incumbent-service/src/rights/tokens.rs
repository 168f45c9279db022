//! Tokens as text: who they are for, how they are proved, and what they are good for.
//!
//! ```text
//! # name    proof                                                                      rights
//! billing   sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08    campaign:billing/ read:config/billing/
//! prober    cert:prober.example.org                                                    observe:
//! ```
//!
//! A token is 256 random bits, so a plain digest of it is as good as the strongest: nobody guesses what it was made from. Every proof is compared with every line, in constant time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use super::{ANYBODY, Denied, Grant, Guest, RESERVED, Right};

/// So many tokens in a file: each login is compared with all.
const TOKENS_MAX: usize = 10_000;
/// So many rights in one line: each operation is compared with all.
const RIGHTS_MAX: usize = 256;
/// The longest name, in bytes. It stands before the owner of each session.
const NAME_LEN_MAX: usize = 64;
/// The longest prefix, in bytes: no shorter than the longest key.
const PREFIX_LEN_MAX: usize = 4096;
/// Tokens that we make begin so: who finds one somewhere knows what it is, and so do programs that look for lost secrets.
const MARK: &str = "incumbent_";

/// A token that was made, and its line for the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Made {
    /// The secret: for its owner, once. Nothing keeps it.
    pub token: String,
    /// What goes into the file.
    pub line: String,
}

/// The token is never shown.
impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Made").field("line", &self.line).finish_non_exhaustive()
    }
}

/// Makes a new token for this name, with these rights: `campaign:billing/ read:config/`.
///
/// # Errors
/// What is wrong with the name or the rights; or that the system has no randomness.
pub fn make(name: &str, rights: &str) -> Result<Made, String> {
    let mut secret = [0; 32];
    SystemRandom::new().fill(&mut secret).map_err(|_| "the system gives no random numbers".to_owned())?;
    made(name, rights, secret)
}

fn made(name: &str, rights: &str, secret: [u8; 32]) -> Result<Made, String> {
    check_name(name)?;
    let token = format!("{MARK}{}", to_digits(&secret));
    let line = format!("{name} sha256:{} {rights}", to_digits(&digest_of(&token)));
    // What we hand out, we can read again; and it is one line.
    match List::parse(&line) {
        Ok(list) if list.lines.len() == 1 && !line.contains(['\n', '\r', '#']) => Ok(Made { token, line }),
        Ok(_) => Err("a name and rights take one line, without a comment".to_owned()),
        Err(wrong) => Err(wrong.what),
    }
}

/// All tokens.
pub(super) struct List {
    lines: Vec<Line>,
}

struct Line {
    guest: Guest,
    proof: Proof,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Proof {
    Digest([u8; 32]),
    /// A name in a certificate that the connection has shown.
    Certificate(String),
}

/// What is wrong with a text, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    pub(super) line: usize,
    pub(super) what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl List {
    pub(super) fn parse(text: &str) -> Result<List, Wrong> {
        let mut list = List { lines: Vec::new() };
        let (mut names, mut proofs) = (BTreeSet::new(), BTreeMap::new());
        for (text, line) in text.lines().zip(1..) {
            let wrong = |what: String| Wrong { line, what };
            let words = text.split_ascii_whitespace().take_while(|word| !word.starts_with('#'));
            let Some(parsed) = parse_line(words).map_err(wrong)? else { continue };
            if list.lines.len() >= TOKENS_MAX {
                return Err(wrong(format!("more than {TOKENS_MAX} tokens")));
            }
            let name = parsed.guest.name().to_owned();
            if !names.insert(name.clone()) {
                return Err(wrong(format!("{name} has a line already: a name has one")));
            }
            if let Some(same) = proofs.insert(parsed.proof.clone(), name) {
                return Err(wrong(format!("{same} has the same token or certificate: each has its own")));
            }
            list.lines.push(parsed);
        }
        Ok(list)
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whose token it is.
    pub(super) fn admit(&self, token: &str) -> Result<Guest, Denied> {
        if token.is_empty() {
            return Err(Denied::NoToken);
        }
        let shown = digest_of(token);
        let mut found = None;
        for line in &self.lines {
            // All are looked at, so that nobody learns from the time how far it came.
            let good = match &line.proof {
                Proof::Digest(kept) => is_same(kept, &shown),
                Proof::Certificate(_) => false,
            };
            if good {
                found = Some(&line.guest);
            }
        }
        found.cloned().ok_or(Denied::BadToken)
    }

    /// Whose certificate it is: the first line's whose name it has.
    pub(super) fn admit_certified(&self, has_name: &dyn Fn(&str) -> bool) -> Result<Guest, Denied> {
        let named = |line: &&Line| matches!(&line.proof, Proof::Certificate(name) if has_name(name));
        self.lines.iter().find(named).map(|it| it.guest.clone()).ok_or(Denied::NoToken)
    }

    /// Who is in both lists with the same proof and the same rights stays the guest that it was; whoever else was in the one before is a guest no more.
    pub(super) fn succeed(&mut self, before: &List) {
        let mut new: BTreeMap<String, &mut Line> = self.lines.iter_mut().map(|it| (it.guest.name().to_owned(), it)).collect();
        for old in &before.lines {
            let same = |new: &&mut &mut Line| new.proof == old.proof && new.guest.0.grants == old.guest.0.grants;
            match new.get_mut(old.guest.name()).filter(same) {
                Some(new) => new.guest = old.guest.clone(),
                None => old.guest.withdraw(),
            }
        }
    }
}

/// Names alone.
impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines.iter().map(|it| it.guest.name())).finish()
    }
}

fn parse_line<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Option<Line>, String> {
    let Some(name) = words.next() else { return Ok(None) };
    check_name(name)?;
    let proof = words.next().ok_or_else(|| format!("{name} has no token: write sha256: and 64 hexadecimal digits behind it"))?;
    let proof = parse_proof(proof)?;
    let mut grants: Vec<Grant> = Vec::new();
    for word in words {
        let grant = parse_grant(word)?;
        if grants.contains(&grant) {
            return Err(format!("{word} is there twice"));
        }
        if grants.len() >= RIGHTS_MAX {
            return Err(format!("more than {RIGHTS_MAX} rights"));
        }
        grants.push(grant);
    }
    if grants.is_empty() {
        return Err(format!("{name} has no rights: write for example observe:PREFIX, or take the line out"));
    }
    Ok(Some(Line { guest: Guest::named(name, grants), proof }))
}

fn check_name(name: &str) -> Result<(), String> {
    let good = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_');
    if name.len() > NAME_LEN_MAX || !name.chars().all(good) {
        return Err(format!(
            "a name has up to {NAME_LEN_MAX} letters, digits, dots, hyphens and underscores, and {name:?} is none"
        ));
    }
    if name == ANYBODY {
        return Err(format!("{ANYBODY} is whoever has no token: choose another name"));
    }
    Ok(())
}

fn parse_proof(word: &str) -> Result<Proof, String> {
    if let Some(name) = word.strip_prefix("cert:").filter(|it| !it.is_empty()) {
        return Ok(Proof::Certificate(name.to_ascii_lowercase()));
    }
    // What is wrong is not shown: it may be the secret itself.
    let digits = word.strip_prefix("sha256:").and_then(of_digits);
    digits.map(Proof::Digest).ok_or_else(|| {
        "the second word is sha256: and the 64 hexadecimal digits of the token's digest, or cert: and a name in a certificate"
            .to_owned()
    })
}

fn parse_grant(word: &str) -> Result<Grant, String> {
    let all = Right::ALL.map(Right::name).join(", ");
    let (right, prefix) =
        word.split_once(':').ok_or_else(|| format!("{word:?} has no colon: a right is written RIGHT:PREFIX"))?;
    let right = Right::ALL.into_iter().find(|it| it.name() == right);
    let right = right.ok_or_else(|| format!("{word:?} is no right: there are {all}"))?;
    let prefix =
        unescaped(prefix).ok_or_else(|| format!("{word:?}: behind % stand two hexadecimal digits, and % itself is %25"))?;
    if prefix.len() > PREFIX_LEN_MAX {
        return Err(format!("a prefix has at most {PREFIX_LEN_MAX} bytes"));
    }
    if prefix.first() == Some(&RESERVED) {
        return Err(format!("{word:?}: what begins with a zero byte is the service's own; admin: reads it"));
    }
    Ok(Grant::new(right, prefix))
}

/// Keys are any bytes, and words have no spaces.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            bytes.push(digit(digits[0])? << 4 | digit(digits[1])?);
            rest = behind;
        } else {
            bytes.push(*first);
        }
    }
    Some(bytes)
}

fn digest_of(token: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

/// Takes the same time wherever they differ.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differs = one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other));
    std::hint::black_box(differs) == 0
}

fn to_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

fn of_digits(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = [0; 32];
    if !rest.is_empty() || pairs.len() != bytes.len() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"; // Of "test".

    fn wrong(text: &str) -> String {
        List::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn a_token_is_known_by_its_digest_and_by_nothing_else() {
        let list = List::parse(&format!("# whose\n\na sha256:{DIGEST} observe: # for people\n")).expect("good");
        assert_eq!(list.len(), 1);
        assert_eq!(list.admit("test").expect("known").name(), "a");
        assert_eq!(list.admit(""), Err(Denied::NoToken));
        for bad in ["tesu", "Test", "test ", DIGEST, "sha256:test", "a"] {
            assert_eq!(list.admit(bad), Err(Denied::BadToken), "{bad}");
        }
        let upper = List::parse(&format!("a sha256:{} observe:", DIGEST.to_uppercase())).expect("good");
        assert!(upper.admit("test").is_ok());
    }

    #[test]
    fn a_token_that_was_made_is_admitted_and_two_are_not_the_same() {
        let one = make("a", "campaign:billing/ observe:").expect("made");
        let two = make("b", "observe:").expect("made");
        assert_ne!(one.token, two.token);
        assert!(one.token.starts_with(MARK) && one.token.len() == MARK.len() + 64, "{one:?}");
        let list = List::parse(&format!("{}\n{}\n", one.line, two.line)).expect("good");
        assert_eq!(list.admit(&one.token).expect("known").name(), "a");
        assert_eq!(list.admit(&two.token).expect("known").name(), "b");
        assert!(!format!("{one:?} {list:?}").contains(&one.token));
        assert!(!one.line.contains(&one.token), "the file does not hold the secret");
        for (name, rights) in
            [("a b", "observe:"), ("a", ""), ("a", "observe:\nb"), ("a", "observe: # x"), ("a", "rule:"), ("", "observe:")]
        {
            assert!(made(name, rights, [7; 32]).is_err(), "{name:?} {rights:?}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_line_and_never_with_a_secret() {
        let good = format!("a sha256:{DIGEST} observe:");
        for (text, words) in [
            (format!("{good}\n\na cert:x observe:"), "line 3: a has a line already"),
            (format!("{good}\nb sha256:{DIGEST} observe:"), "line 2: a has the same token"),
            ("a".to_owned(), "line 1: a has no token"),
            ("a hunter2 observe:".to_owned(), "line 1: the second word"),
            (format!("a sha256:{} observe:", &DIGEST[1..]), "64 hexadecimal digits"),
            (format!("a sha256:{}é observe:", &DIGEST[2..]), "64 hexadecimal digits"),
            ("a cert: observe:".to_owned(), "the second word"),
            (format!("a sha256:{DIGEST}"), "a has no rights"),
            (format!("a sha256:{DIGEST} observe"), "no colon"),
            (format!("a sha256:{DIGEST} rule:x"), "there are observe, campaign, evict, read, write, admin"),
            (format!("a sha256:{DIGEST} read:x read:x"), "read:x is there twice"),
            (format!("a sha256:{DIGEST} read:%0"), "two hexadecimal digits"),
            (format!("a sha256:{DIGEST} read:%00x"), "the service's own"),
            (format!("anybody sha256:{DIGEST} read:"), "choose another name"),
            (format!("a/b sha256:{DIGEST} read:"), "a name has"),
            (format!("{} sha256:{DIGEST} read:", "a".repeat(65)), "a name has"),
        ] {
            let told = wrong(&text);
            assert!(told.contains(words), "{told}");
            assert!(!told.contains("hunter2") && !told.contains(DIGEST), "{told}");
        }
    }

    #[test]
    fn a_prefix_may_have_any_bytes() {
        let list = List::parse(&format!("a sha256:{DIGEST} read:a%20b%25%ff")).expect("good");
        assert_eq!(list.lines[0].guest.0.grants, [Grant::new(Right::Read, &b"a b%\xff"[..])]);
    }

    #[test]
    fn a_certificate_is_known_by_its_name() {
        let list = List::parse("a cert:A.example observe:\nb cert:b.example observe:").expect("good");
        assert_eq!(list.admit_certified(&|name| name == "a.example").expect("known").name(), "a");
        assert_eq!(list.admit_certified(&|_| false), Err(Denied::NoToken));
        assert_eq!(list.admit("a.example"), Err(Denied::BadToken), "a name is no secret");
    }
}
