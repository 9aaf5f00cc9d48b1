//! What must hold before a function is parsed at all: `syn` recurses, so source that nests without
//! end is refused here, by a loop.

use proc_macro2::{TokenStream, TokenTree};

use crate::body::MAX_DEPTH;
use crate::messages;

/// Refuses tokens whose groups nest, or whose prefix operators follow each other, too deep.
pub(crate) fn check_depth(tokens: TokenStream) -> Result<(), syn::Error> {
    let mut stack = vec![tokens.into_iter()];
    let mut prefixes = 0;
    while let Some(top) = stack.last_mut() {
        let Some(token) = top.next() else {
            stack.pop();
            continue;
        };
        let span = token.span();
        match token {
            TokenTree::Group(group) => {
                stack.push(group.stream().into_iter());
                prefixes = 0;
            }
            TokenTree::Punct(punct) if matches!(punct.as_char(), '!' | '-' | '*' | '&') => {
                prefixes += 1;
            }
            _ => prefixes = 0,
        }
        if stack.len() > MAX_DEPTH || prefixes > MAX_DEPTH {
            return Err(syn::Error::new(span, messages::TOO_DEEP.render("")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> TokenStream {
        text.parse().expect("the text is Rust")
    }

    #[test]
    fn accepts_what_people_write() {
        assert!(check_depth(tokens("fn f() { let x = ((1 + 2) * 3); }")).is_ok());
    }

    #[test]
    fn refuses_a_thousand_brackets() {
        let text = format!("{}1{}", "(".repeat(1000), ")".repeat(1000));
        assert!(check_depth(tokens(&text)).is_err());
    }

    #[test]
    fn refuses_a_thousand_minus_signs() {
        assert!(check_depth(tokens(&format!("{}1", "-".repeat(1000)))).is_err());
    }
}
