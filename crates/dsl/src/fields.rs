//! The bonuses of directories and datasets in host integers.
//!
//! The DSL does not compute on the on-disk structs: [`DirFields`] and [`DatasetFields`] are checked
//! when read, and written back whole, padding included.
//!
//! Source: OpenZFS include/sys/dsl_dir.h, include/sys/dsl_dataset.h @be7657e3

use base::{Error, Result};
use phys::dnode::DN_MAX_OBJECT;
use phys::dsl::{DD_FLAG_USED_BREAKDOWN, DslDatasetPhys, DslDirPhys};
use phys::{BlkPtrPhys, Phys};
use zerocopy::IntoBytes;

use crate::dir::{USED_KINDS, Used};
use crate::size::{Space, apply};

/// Declares a struct of integers that mirrors an on-disk struct.
macro_rules! fields {
    ($(#[$doc:meta])* $name:ident of $phys:ident { $($(#[$fdoc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: u64,)*
            pub(crate) extra: $phys,
        }

        impl $name {
            fn from_phys(phys: &$phys) -> $name {
                $name { $($field: phys.$field.get(),)* extra: *phys }
            }

            fn to_phys(&self) -> $phys {
                let mut phys = self.extra;
                $(phys.$field.set(self.$field);)*
                phys
            }
        }
    };
}

fields! {
    /// `dsl_dir_phys_t` in host integers.
    DirFields of DslDirPhys {
        /// dd_creation_time
        creation_time,
        /// dd_head_dataset_obj; 0 if there is none
        head_dataset_obj,
        /// dd_parent_obj; 0 for the root
        parent_obj,
        /// dd_origin_obj: the snapshot that the head was cloned from
        origin_obj,
        /// dd_child_dir_zapobj: name -> directory
        child_dir_zapobj,
        /// dd_used_bytes
        used_bytes,
        /// dd_compressed_bytes
        compressed_bytes,
        /// dd_uncompressed_bytes
        uncompressed_bytes,
        /// dd_quota; 0 for none
        quota,
        /// dd_reserved; 0 for none
        reserved,
        /// dd_props_zapobj
        props_zapobj,
        /// dd_deleg_zapobj; 0 for none
        deleg_zapobj,
        /// dd_flags
        flags,
        /// dd_clones: the heads whose origin is a snapshot of this directory; 0 for none
        clones,
    }
}

fields! {
    /// `dsl_dataset_phys_t` in host integers.
    DatasetFields of DslDatasetPhys {
        /// ds_dir_obj
        dir_obj,
        /// ds_prev_snap_obj
        prev_snap_obj,
        /// ds_prev_snap_txg: the txg in which it was taken
        prev_snap_txg,
        /// ds_next_snap_obj: the snapshot, or the head, that follows; 0 for heads
        next_snap_obj,
        /// ds_snapnames_zapobj: name -> snapshot; 0 for snapshots
        snapnames_zapobj,
        /// ds_num_children: the successor and the clones; 0 for heads
        num_children,
        /// ds_creation_time
        creation_time,
        /// ds_creation_txg
        creation_txg,
        /// ds_deadlist_obj
        deadlist_obj,
        /// ds_referenced_bytes
        referenced_bytes,
        /// ds_compressed_bytes
        compressed_bytes,
        /// ds_uncompressed_bytes
        uncompressed_bytes,
        /// ds_unique_bytes
        unique_bytes,
        /// ds_fsid_guid
        fsid_guid,
        /// ds_guid
        guid,
        /// ds_flags
        flags,
        /// ds_next_clones_obj: the datasets that follow it in clones; 0 for none
        next_clones_obj,
        /// ds_props_obj: properties of a snapshot; 0 for none
        props_obj,
        /// ds_userrefs_obj: holds of a snapshot; 0 for none
        userrefs_obj,
    }
}

impl DirFields {
    /// From the bonus of a directory.
    ///
    /// # Errors
    /// `Corrupt` when it is too short.
    pub fn read(bonus: &[u8]) -> Result<DirFields> {
        let fields = DirFields::from_phys(DslDirPhys::view(bonus)?);
        check_bytes("dd_used_bytes", fields.used_bytes)?;
        check_bytes("dd_compressed_bytes", fields.compressed_bytes)?;
        check_bytes("dd_uncompressed_bytes", fields.uncompressed_bytes)?;
        check_bytes("dd_reserved", fields.reserved)?;
        for used in &fields.extra.used_breakdown {
            check_bytes("dd_used_breakdown", used.get())?;
        }
        Ok(fields)
    }

    /// The bonus.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_phys().as_bytes().to_vec()
    }

    /// dd_used_breakdown
    #[must_use]
    pub fn used_by(&self, kind: Used) -> u64 {
        self.extra.used_breakdown[kind as usize].get()
    }

    /// Whether dd_used_breakdown is maintained, as it is in pools of version 13 and later.
    #[must_use]
    pub(crate) fn has_breakdown(&self) -> bool {
        self.flags & DD_FLAG_USED_BREAKDOWN != 0
    }

    pub(crate) fn set_has_breakdown(&mut self) {
        self.flags |= DD_FLAG_USED_BREAKDOWN;
    }

    /// The three sizes of everything at and below the directory.
    #[must_use]
    pub fn space(&self) -> Space {
        Space::stored(
            self.used_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
        )
    }

    pub(crate) fn add(&mut self, change: Space) {
        apply(&mut self.used_bytes, change.used, "dd_used_bytes");
        apply(
            &mut self.compressed_bytes,
            change.comp,
            "dd_compressed_bytes",
        );
        apply(
            &mut self.uncompressed_bytes,
            change.uncomp,
            "dd_uncompressed_bytes",
        );
    }

    pub(crate) fn add_kind(&mut self, kind: Used, bytes: i64) {
        if self.has_breakdown() {
            let mut used = self.used_by(kind);
            apply(&mut used, bytes, "dd_used_breakdown");
            self.extra.used_breakdown[kind as usize].set(used);
        }
    }
}

const _: () = assert!(USED_KINDS == 5);

/// Bytes; more than any pool can hold. Accounts up to this can be summed without overflow.
pub(crate) const ACCOUNT_MAX_BYTES: u64 = 1 << 60;

/// Checks a number of bytes from disk.
pub(crate) fn check_bytes(field: &str, bytes: u64) -> Result<()> {
    if bytes <= ACCOUNT_MAX_BYTES {
        return Ok(());
    }
    Err(Error::corrupt(format!("{field} is {bytes}")))
}

impl DatasetFields {
    /// From the bonus of a dataset.
    ///
    /// # Errors
    /// `Corrupt` when it is too short.
    pub fn read(bonus: &[u8]) -> Result<DatasetFields> {
        let fields = DatasetFields::from_phys(DslDatasetPhys::view(bonus)?);
        if (fields.num_children == 0) != (fields.next_snap_obj == 0) {
            return Err(Error::corrupt(format!(
                "ds_num_children is {} although ds_next_snap_obj is {}",
                fields.num_children, fields.next_snap_obj
            )));
        }
        if fields.num_children > DN_MAX_OBJECT {
            let count = fields.num_children;
            return Err(Error::corrupt(format!("ds_num_children is {count}")));
        }
        check_bytes("ds_referenced_bytes", fields.referenced_bytes)?;
        check_bytes("ds_compressed_bytes", fields.compressed_bytes)?;
        check_bytes("ds_uncompressed_bytes", fields.uncompressed_bytes)?;
        check_bytes("ds_unique_bytes", fields.unique_bytes)?;
        fields.check_txgs()?;
        Ok(fields)
    }

    /// Checks that the predecessor is older, so that a walk along the predecessors terminates.
    fn check_txgs(&self) -> Result<()> {
        let (object, prev) = (self.prev_snap_obj, self.prev_snap_txg);
        let is_snapshot = self.num_children != 0;
        let is_later = !is_snapshot || prev < self.creation_txg;
        if is_later && (object != 0 || prev == 0) {
            return Ok(());
        }
        let created = self.creation_txg;
        Err(Error::corrupt(format!(
            "ds_prev_snap_txg is {prev} (object {object}), ds_creation_txg {created}"
        )))
    }

    /// The bonus.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_phys().as_bytes().to_vec()
    }

    /// ds_bp: the root block.
    #[must_use]
    pub fn bp(&self) -> BlkPtrPhys {
        self.extra.bp
    }

    pub(crate) fn set_bp(&mut self, bp: BlkPtrPhys) {
        self.extra.bp = bp;
    }

    /// The three sizes of everything that the dataset references.
    #[must_use]
    pub fn referenced(&self) -> Space {
        Space::stored(
            self.referenced_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
        )
    }

    pub(crate) fn set_referenced(&mut self, space: Space) {
        self.referenced_bytes = space.used.cast_unsigned();
        self.compressed_bytes = space.comp.cast_unsigned();
        self.uncompressed_bytes = space.uncomp.cast_unsigned();
    }

    pub(crate) fn add_referenced(&mut self, change: Space) {
        apply(
            &mut self.referenced_bytes,
            change.used,
            "ds_referenced_bytes",
        );
        apply(
            &mut self.compressed_bytes,
            change.comp,
            "ds_compressed_bytes",
        );
        apply(
            &mut self.uncompressed_bytes,
            change.uncomp,
            "ds_uncompressed_bytes",
        );
    }

    pub(crate) fn has_flag(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}
