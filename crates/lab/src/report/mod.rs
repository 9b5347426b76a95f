//! The report: one page of HTML that needs no network.
//!
//! # What it is
//! Tables, charts in SVG, and the commands to do it again; light or dark as the reader's system
//! prefers, and readable on a phone. [`page`] makes it from outcomes; it contains everything that
//! the text on the terminal does.

mod bars;
mod drives;
mod histogram;
pub(crate) mod html;
pub(crate) mod page;
mod picture;

pub use page::page;
