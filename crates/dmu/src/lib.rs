//! Objsets, dnodes, transactions

mod account;
mod props;
mod tx;
mod txg;

pub use account::{BlockAccounting, FreeAtOnce, Owner, OwnerAccounting, OwnerDelta, OwnerDeltas};
pub use props::{ObjsetProps, RedundantMetadata};
pub use tx::Tx;
pub use txg::{TxGroups, TxgSettings, TxgSync};
