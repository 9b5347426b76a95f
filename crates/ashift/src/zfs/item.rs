//! Every property of a dataset, with its value and source.
//!
//! # What it is
//! A property is computed (space, dates, links), fixed in the objset when it was made (`version`,
//! `utf8only`, `volblocksize`), or set: then its value is the local, received or inherited one, or
//! its default. `mountpoint` is the only one whose value depends on where it is inherited from.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_dataset.c (`zfs_prop_get`, `get_numeric_property`).

use phys::PropValue;
use service::{MountedDataset, place};
use std::collections::BTreeMap;

use admin::listing::{Item, Prop};
use admin::prop::{DATASET, Edit, PropDesc, PropName, Source, is_user_property};
use base::{ObjectId, Result};
use dsl::{DatasetStats, DslBookmark, Encryption, PropSource};
use phys::znode::{MASTER_NODE_OBJ, master_node};

use super::owned;
use super::target::{Target, What};

/// `ZVOL_OBJ`: a volume's data
const ZVOL_OBJ: ObjectId = ObjectId(1);
/// `ZVOL_ZAP_OBJ`: its size
const ZVOL_ZAP_OBJ: ObjectId = ObjectId(2);

/// `ZFS_KEYSTATUS_UNAVAILABLE`; the next number is that of an available key.
const KEY_UNAVAILABLE: u64 = 1;

/// What is requested of an item beyond what every item has.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted<'a> {
    /// Names that are not in the tables: `written@…` is computed only for these.
    pub(super) names: &'a [PropName],
    /// Received values.
    pub(super) received: bool,
}

/// All properties of a dataset.
pub(super) fn item(target: &Target, wanted: Wanted<'_>) -> Result<Item> {
    let mut item = Item {
        name: target.name.clone(),
        types: Some(target.types),
        props: Vec::new(),
    };
    match &target.what {
        What::Bookmark(bookmark) => {
            item.props.push(Prop::text("type", "bookmark"));
            item.props.push(Prop::number("creation", bookmark.creation));
            add_sizes(&mut item.props, bookmark);
            item.props
                .push(Prop::number("createtxg", bookmark.createtxg.0));
            item.props.push(Prop::number("guid", bookmark.guid.0));
        }
        What::Dataset(_) => item.props = Reader::open(target)?.all(wanted)?,
    }
    Ok(item)
}

/// What only some bookmarks record.
fn add_sizes(props: &mut Vec<Prop>, bookmark: &DslBookmark) {
    let bytes = |n: i64| n.max(0).cast_unsigned();
    if let Some(space) = bookmark.referenced() {
        props.push(Prop::number("referenced", bytes(space.used)));
        props.push(Prop::number("logicalreferenced", bytes(space.uncomp)));
    }
    if bookmark.ivset_guid() != 0 {
        props.push(Prop::number("ivsetguid", bookmark.ivset_guid()));
    }
}

/// What is known of one dataset.
struct Reader<'a> {
    target: &'a Target,
    stats: DatasetStats,
    set: BTreeMap<String, dsl::Prop>,
    mounted: Option<MountedDataset>,
    encryption: Option<Encryption>,
    encryption_root: Option<String>,
}

impl<'a> Reader<'a> {
    fn open(target: &'a Target) -> Result<Reader<'a>> {
        let ds = target
            .dataset()
            .expect("a bookmark has no properties that are set");
        let (stats, set) = (target.datasets().stats(ds)?, target.datasets().props(ds)?);
        let mounted = target.pool.mount_of(ds);
        let encryption = target.datasets().encryption(ds)?;
        let root = encryption
            .as_ref()
            .map(|it| target.datasets().encryption_root(it));
        Ok(Reader {
            target,
            stats,
            set,
            mounted,
            encryption,
            encryption_root: root.transpose()?,
        })
    }

    fn all(&self, wanted: Wanted<'_>) -> Result<Vec<Prop>> {
        let mut props = Vec::new();
        let types = self.target.types;
        for desc in DATASET.iter().filter(|desc| desc.types.meets(types)) {
            props.extend(self.native(desc)?);
        }
        for (name, prop) in self.set.iter().filter(|(name, _)| is_user_property(name)) {
            // A user property is text, whichever program wrote it.
            let value = match &prop.value {
                PropValue::Number(number) => PropValue::Text(number.to_string()),
                text @ PropValue::Text(_) => text.clone(),
            };
            props.push(Prop::new(name, value, source(&prop.source)));
        }
        for name in wanted.names.iter().map(PropName::as_str) {
            if let Some(written) = self.written(name)? {
                props.push(Prop::new(name, PropValue::Number(written), Source::Local));
            }
            if let Some(figure) = owned::figure(self.target, name) {
                props.push(Prop::new(name, PropValue::Number(figure), Source::Local));
            }
        }
        if wanted.received {
            self.add_received(&mut props)?;
        }
        Ok(props)
    }

    /// Whether what is in the data set can be read.
    fn is_unlocked(&self) -> bool {
        self.encryption.as_ref().is_none_or(|it| it.is_available)
    }

    fn native(&self, desc: &PropDesc) -> Result<Option<Prop>> {
        if desc.edit == Edit::ReadOnly {
            return Ok(self.computed(desc.name));
        }
        let limit = match desc.name {
            "quota" => Some(self.stats.quota),
            "reservation" => Some(self.stats.reservation),
            "refquota" => Some(self.stats.refquota),
            "refreservation" => Some(self.stats.refreservation),
            _ => None,
        };
        if let Some(limit) = limit {
            return Ok(Some(self.limit(desc, limit)));
        }
        if let Some(prop) = self.of_key(desc) {
            return Ok(Some(prop));
        }
        match desc.name {
            "version" => self.fixed(desc, master_node::VERSION),
            "utf8only" => self.fixed(desc, master_node::UTF8ONLY),
            "normalization" => self.fixed(desc, master_node::NORMALIZATION),
            "casesensitivity" => self.fixed(desc, master_node::CASESENSITIVITY),
            "volsize" | "volblocksize" => self.of_volume(desc),
            // Shown only where there is a key.
            "pbkdf2salt" => Ok(None),
            "mountpoint" => Ok(Some(self.mountpoint(desc))),
            _ => Ok(Some(self.settable(desc))),
        }
    }

    /// A property with its set value, or its default.
    fn settable(&self, desc: &PropDesc) -> Prop {
        let found = self.set.get(desc.name);
        let fits = |value: &PropValue| {
            value.as_text().is_some() == matches!(desc.kind, admin::prop::Kind::Text(_))
        };
        let prop = match found.map(|prop| (prop.value.clone(), source(&prop.source))) {
            Some((value, source)) if fits(&value) => Prop::new(desc.name, value, source),
            _ => Prop::new(desc.name, desc.default_value(), Source::Default),
        };
        match self.given(desc.name) {
            // What the mount has instead.
            Some(value) if value != prop.value => Prop::new(desc.name, value, Source::Temporary),
            _ => prop,
        }
    }

    /// What the mount of the dataset was given instead of a property.
    #[doc(alias = "get_numeric_property")]
    fn given(&self, name: &str) -> Option<PropValue> {
        let given = &self.mounted.as_ref()?.given;
        let value = given.get(name).filter(|_| name != "xattr")?;
        Some(PropValue::Number(u64::from(*value)))
    }

    /// A quota or reservation in effect.
    fn limit(&self, desc: &PropDesc, bytes: u64) -> Prop {
        let source = match self.set.get(desc.name) {
            Some(prop) => source(&prop.source),
            None if bytes == 0 => Source::Default,
            None => Source::Local,
        };
        Prop::new(desc.name, PropValue::Number(bytes), source)
    }

    /// A property fixed when the file system was created.
    fn fixed(&self, desc: &PropDesc, entry: &str) -> Result<Option<Prop>> {
        let ds = self.target.dataset().expect("a reader is for datasets");
        let objset = ds.objset()?;
        if objset.type_() != phys::ObjsetType::Zfs || !self.is_unlocked() {
            return Ok(None);
        }
        let value = zap::lookup_u64(&objset, ObjectId(MASTER_NODE_OBJ), entry)?;
        Ok(Some(Prop::number(desc.name, value.unwrap_or(0))))
    }

    /// A property that the key of the data set has.
    #[doc(alias = "dsl_dataset_crypt_stats")]
    fn of_key(&self, desc: &PropDesc) -> Option<Prop> {
        let encryption = self.encryption.as_ref()?;
        let number = match desc.name {
            "encryption" => encryption.suite as u64,
            "keyformat" => encryption.format as u64,
            // Of a passphrase.
            "pbkdf2iters" if encryption.iterations != 0 => encryption.iterations,
            _ => return None,
        };
        Some(Prop::number(desc.name, number))
    }

    fn of_volume(&self, desc: &PropDesc) -> Result<Option<Prop>> {
        let ds = self.target.dataset().expect("a reader is for datasets");
        let objset = ds.objset()?;
        if objset.type_() != phys::ObjsetType::Zvol || !self.is_unlocked() {
            return Ok(None);
        }
        let value = if desc.name == "volsize" {
            zap::lookup_u64(&objset, ZVOL_ZAP_OBJ, "size")?.unwrap_or(0)
        } else {
            objset.hold(ZVOL_OBJ)?.blksz()
        };
        let set = self.set.get(desc.name).map(|prop| source(&prop.source));
        let source = set.unwrap_or(match desc.name {
            "volsize" => Source::Local,
            _ if Some(value) == desc.default_value().as_number() => Source::Default,
            _ => Source::None,
        });
        Ok(Some(Prop::new(desc.name, PropValue::Number(value), source)))
    }

    /// The mountpoint: if inherited, below that of the dataset it is inherited from.
    fn mountpoint(&self, desc: &PropDesc) -> Prop {
        let mut prop = self.settable(desc);
        let path = prop.value.as_text().unwrap_or("/").to_owned();
        if path.starts_with('/') {
            let below = match &prop.source {
                Source::Inherited(from) => self.target.name.strip_prefix(from.as_str()),
                Source::Default => Some(self.target.name.as_str()),
                _ => None,
            };
            let altroot = self.target.pool.altroot();
            prop.value = PropValue::Text(place(altroot, &path, below.unwrap_or_default()));
        }
        prop
    }

    /// A read-only property; `None` if the dataset does not have it.
    fn computed(&self, name: &str) -> Option<Prop> {
        let stats = &self.stats;
        let number = match name {
            "used" => stats.used,
            "available" => stats.available,
            "referenced" => stats.referenced,
            "creation" => stats.creation,
            "createtxg" => stats.createtxg.0,
            "guid" => stats.guid.0,
            "compressratio" => stats.compressratio,
            "refcompressratio" => stats.refcompressratio,
            "mounted" => u64::from(self.mounted.is_some()),
            "usedbysnapshots" => stats.usedbysnapshots,
            "usedbydataset" => stats.usedbydataset,
            "usedbychildren" => stats.usedbychildren,
            "usedbyrefreservation" => stats.usedbyrefreservation,
            "defer_destroy" => u64::from(stats.defer_destroy),
            "userrefs" => stats.userrefs,
            "objsetid" => stats.objsetid.0,
            "written" => stats.written,
            "logicalused" => stats.logicalused,
            "logicalreferenced" => stats.logicalreferenced,
            "unique" => stats.unique,
            "numclones" => stats.clones.len() as u64,
            "inconsistent" => u64::from(stats.inconsistent),
            "useraccounting" => 1,
            "redacted" => u64::from(self.target.is_redacted()),
            "keystatus" => match &self.encryption {
                Some(encryption) => KEY_UNAVAILABLE + u64::from(encryption.is_available),
                None => return None,
            },
            "keyguid" => self.encryption.as_ref()?.key_guid,
            "filesystem_count" | "snapshot_count" => return Some(self.count_for_limit(name)),
            "snapshots_changed" if stats.snapshots_changed != 0 => stats.snapshots_changed,
            _ => return self.computed_text(name),
        };
        Some(Prop::number(name, number))
    }

    /// What is counted below a data set since it got a limit.
    fn count_for_limit(&self, name: &str) -> Prop {
        let (number, source) = match &self.stats.counts {
            Some(counts) if name == "filesystem_count" => (counts.filesystems, Source::Local),
            Some(counts) => (counts.snapshots, Source::Local),
            None => (u64::MAX, Source::Default),
        };
        Prop::new(name, PropValue::Number(number), source)
    }

    fn computed_text(&self, name: &str) -> Option<Prop> {
        let text = match name {
            "type" => self.target.type_word().to_owned(),
            "origin" => self.stats.origin.clone()?,
            "encryptionroot" => self.encryption_root.clone()?,
            "prevsnap" => self.stats.prev_snap.clone()?,
            "clones" if !self.stats.clones.is_empty() => self.stats.clones.join(","),
            _ => return None,
        };
        Some(Prop::text(name, text))
    }

    /// `written#bookmark`: of this data set, or with the name of another one.
    fn written_since_bookmark(&self, bookmark: &str) -> Option<u64> {
        let full = match bookmark.contains('#') {
            true => bookmark.to_owned(),
            false => format!("{}#{bookmark}", admin::name::dataset_of(&self.target.name)),
        };
        let ds = self.target.dataset().expect("a reader is for datasets");
        let written = self
            .target
            .datasets()
            .space_written_since_bookmark(&full, ds);
        written.ok().map(|space| space.used.max(0).cast_unsigned())
    }

    /// `written@snapshot`: the bytes written since.
    fn written(&self, name: &str) -> Result<Option<u64>> {
        if let Some(bookmark) = name.strip_prefix("written#") {
            return Ok(self.written_since_bookmark(bookmark));
        }
        let Some(snapshot) = name.strip_prefix("written@") else {
            return Ok(None);
        };
        let head = admin::name::dataset_of(&self.target.name);
        let full = match snapshot.contains('@') {
            true => snapshot.to_owned(),
            false => format!("{head}@{snapshot}"),
        };
        let datasets = self.target.datasets();
        let ds = self.target.dataset().expect("a reader is for datasets");
        let written = datasets
            .find(&full)
            .and_then(|since| datasets.space_written(&since, ds));
        Ok(written.ok().map(|space| space.used.max(0).cast_unsigned()))
    }

    fn add_received(&self, props: &mut [Prop]) -> Result<()> {
        let ds = self.target.dataset().expect("a reader is for datasets");
        let received = self.target.datasets().received_props(ds)?;
        let style = admin::listing::Style::new(admin::prop::TableKind::Dataset);
        for prop in props {
            let value = received.get(&prop.name);
            prop.received = value.map(|value| style.format(&prop.name, value));
        }
        Ok(())
    }
}

fn source(source: &PropSource) -> Source {
    match source {
        PropSource::Local => Source::Local,
        PropSource::Received => Source::Received,
        PropSource::Inherited(from) => Source::Inherited(from.clone()),
    }
}
