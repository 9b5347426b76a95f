//! `ashift machine`: makes machines of emulated drives, keeps them switched on, and does what a hand does to them.

mod command;
mod fault;
mod mount;
mod up;

pub(crate) use command::{MACHINE, memory_line};
