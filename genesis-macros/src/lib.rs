//! The procedural macros of Genesis.

use proc_macro::TokenStream;

/// Placeholder until the parser exists.
#[proc_macro_attribute]
pub fn kernel(_attr: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// Placeholder until the parser exists.
#[proc_macro_attribute]
pub fn device(_attr: TokenStream, item: TokenStream) -> TokenStream {
    item
}
