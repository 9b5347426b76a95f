//! Keys of encrypted data sets: where they come from, which are loaded, and what is said of new ones.

mod asked;
mod load;
mod new;

pub(crate) use asked::Asked;
pub(crate) use load::{load, load_all, say_forgotten, unload, unlock};
pub(crate) use new::{Choice, Said, is_of_key};
