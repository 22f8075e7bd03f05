// SPDX-License-Identifier: GPL-2.0

//! Texts of errors and events, for the log.

/// Defines enums with a text for each variant, which is their [`Display`](core::fmt::Display):
/// `variant => format string, values;`. The fields of a tuple variant have names too, for the
/// format string.
macro_rules! texts {
    ($(
        $(#[$attribute:meta])*
        pub enum $type:ident {
            $(
                $(#[$doc:meta])*
                $variant:ident $(($($item:ident: $item_type:ty),*))?
                $({ $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)* })?
                => $text:literal $(, $value:expr)*;
            )*
        }
    )*) => {
        $(
            $(#[$attribute])*
            pub enum $type {
                $(
                    $(#[$doc])*
                    $variant $(($($item_type),*))?
                        $({ $($(#[$field_doc])* $field: $field_type,)* })?,
                )*
            }

            impl core::fmt::Display for $type {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    match self {
                        $(
                            Self::$variant $(($($item),*))? $({ $($field),* })? => {
                                write!(f, $text $(, $value)*)
                            }
                        )*
                    }
                }
            }
        )*
    };
}
pub(crate) use texts;
