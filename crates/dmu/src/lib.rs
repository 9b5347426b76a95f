//! Objsets, dnodes, transactions
