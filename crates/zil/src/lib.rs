//! The intent log
