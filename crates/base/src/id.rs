//! Identities: numbers that must not be mixed up with other kinds of numbers.

use std::ops::Range;

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<u64> for $name {
            fn from(value: u64) -> Self {
                Self(value)
            }
        }
    };
}

identity!(
    /// A transaction group number; increases by one per sync of the pool.
    Txg
);
identity!(
    /// A random 64-bit name of a pool, vdev or dataset.
    Guid
);
identity!(
    /// An object number within one objset; 0 is the meta-dnode.
    ObjectId
);
identity!(
    /// An objset: the object number of its dataset in the MOS; 0 is the MOS itself.
    ObjsetId
);
identity!(
    /// The index of a top-level vdev below the root vdev.
    VdevId
);
identity!(
    /// The index of a block within one level of an object.
    BlkId
);
identity!(
    /// The index of a metaslab within its top-level vdev.
    MetaslabId
);

impl MetaslabId {
    /// Where the metaslab lies on its vdev, in bytes. Metaslabs are cut at multiples of `1 << ms_shift`; what is
    /// allocated in them starts and ends at multiples of `align`, so they do, too.
    #[must_use]
    #[doc(alias = "vdev_op_metaslab_init")]
    pub fn range(self, ms_shift: u32, align: u64) -> Range<u64> {
        let (start, end) = (self.0 << ms_shift, (self.0 + 1) << ms_shift);
        let first = start.next_multiple_of(align).min(end);
        first..first + (end - first) / align * align
    }
}

impl Txg {
    /// `TXG_INITIAL`: the txg in which a pool is created.
    pub const INITIAL: Txg = Txg(4);

    /// The txg after this one.
    #[must_use]
    pub fn next(self) -> Txg {
        Txg(self.0 + 1)
    }
}
