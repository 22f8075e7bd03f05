// SPDX-License-Identifier: GPL-2.0

//! The kernel crate's attribute macros, for data that is not pinned.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// `#[pin_data]`: returns the type unchanged, except that `#[pin]` is removed.
#[proc_macro_attribute]
pub fn pin_data(_: TokenStream, item: TokenStream) -> TokenStream {
    let mut all: Vec<TokenTree> = item.into_iter().collect();
    if let Some(TokenTree::Group(fields)) = all.last_mut() {
        if fields.delimiter() == Delimiter::Brace {
            *fields = Group::new(Delimiter::Brace, without_pin(fields.stream()));
        }
    }
    all.into_iter().collect()
}

fn without_pin(fields: TokenStream) -> TokenStream {
    let mut left: Vec<TokenTree> = Vec::new();
    let is_pin = |token: &TokenTree| match token {
        TokenTree::Group(group) => {
            group.delimiter() == Delimiter::Bracket && group.stream().to_string() == "pin"
        }
        _ => false,
    };
    for token in fields {
        if is_pin(&token) {
            // Also removes the `#` before it.
            left.pop();
        } else {
            left.push(token);
        }
    }
    left.into_iter().collect()
}
