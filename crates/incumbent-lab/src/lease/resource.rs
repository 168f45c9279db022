//! The reference resource (L5): accepts a write if its token is at least the greatest that it has accepted.

use incumbent_protocol::protocol::Token;

/// Something that leaders write to.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Resource {
    greatest: Option<Token>,
}

impl Resource {
    /// Whether the write is accepted.
    pub fn write(&mut self, token: Token) -> bool {
        if self.greatest.is_some_and(|greatest| token < greatest) {
            return false;
        }
        self.greatest = Some(token);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use incumbent_protocol::protocol::Term;

    #[test]
    fn a_smaller_token_than_the_greatest_accepted_is_refused() {
        let mut resource = Resource::default();
        let writes = [1, 3, 2, 3, 4].map(|term| resource.write(Token::new(1, Term(term)).unwrap()));
        assert_eq!(writes, [true, true, false, true, true]);
    }
}
