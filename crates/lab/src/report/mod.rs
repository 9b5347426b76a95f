//! The report: one page of HTML that needs no network.
//!
//! # What it is
//! Tables, charts in SVG, and the commands to do it again; light and dark as the reader's system
//! wants it, and readable on a telephone. [`page`] makes it out of outcomes; nothing is left out
//! that the text on the terminal says.

mod bars;
mod drives;
mod histogram;
mod html;
mod page;
mod picture;

pub use page::page;
