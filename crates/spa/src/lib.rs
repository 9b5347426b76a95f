//! The pool: import, export, txg sync, features, history
