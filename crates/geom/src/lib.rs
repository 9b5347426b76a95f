//! Providers: what a pool stands on
