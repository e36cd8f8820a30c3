//! The words that enums have in every output.

macro_rules! words {
    ($type:ident: $($variant:ident => $word:literal),+) => {
        impl $type {
            /// The word in every output.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub(crate) use words;
