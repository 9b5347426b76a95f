//! `userused@NAME`, `userquota@NAME` and similar properties: who they mean, and limits as they are typed.
//!
//! # What it is
//! An owner is a user or group of this host by name, or a number; a project is a number. Security identifiers (SIDs)
//! and names with a domain need a service that only illumos has: OpenZFS on Linux refuses them in the same words.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_dataset.c (`userquota_propname_decode`).

use admin::prop::{OwnerProperty, PropError, owner_property, parse_owner_limit};
use phys::owner::OwnerKind;
use zpl::OwnerLimit;

use crate::owner;

/// What `name=value` limits; `None` if it is not a property of an owner.
pub(crate) fn parse_limit(name: &str, value: &str) -> Option<Result<OwnerLimit, PropError>> {
    let property = owner_property(name)?;
    let parsed = parse_owner_limit(name, id_of(&property), value);
    Some(parsed.map(|(id, limit)| OwnerLimit {
        of: property.of,
        id,
        limit,
    }))
}

/// The number of the owner that a property names.
pub(crate) fn id_of(property: &OwnerProperty<'_>) -> Option<u64> {
    let name = property.owner;
    let named = match property.of.kind {
        OwnerKind::User => owner::id_of_user(name),
        OwnerKind::Group => owner::id_of_group(name),
        OwnerKind::Project => None,
    };
    named.or_else(|| number(name))
}

/// A number as strtoul(3) reads it, in 32 bits: what is larger begins again at 0, and nothing is 0.
fn number(typed: &str) -> Option<u64> {
    let text = typed.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (is_negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() {
        return typed.is_empty().then_some(0);
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = match digits.parse::<u64>() {
        Ok(number) if is_negative => number.wrapping_neg(),
        Ok(number) => number,
        Err(_) => u64::MAX,
    };
    Some(number & u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_strtoul() {
        let cases = [
            ("", Some(0)),
            ("5", Some(5)),
            ("+5", Some(5)),
            (" 6", Some(6)),
            ("-1", Some(4_294_967_295)),
            ("4294967296", Some(0)),
            ("99999999999999999999", Some(4_294_967_295)),
            ("0x10", None),
            ("6 ", None),
            ("-", None),
            (" ", None),
            ("S-1-5-21-1", None),
        ];
        for (text, id) in cases {
            assert_eq!(number(text), id, "{text}");
        }
    }

    #[test]
    fn limits_are_parsed_with_their_owners() {
        let limit =
            |name, value| parse_limit(name, value).map(|limit| limit.map_err(|e| e.to_string()));
        let root = limit("userquota@root", "10M").unwrap().unwrap();
        assert_eq!((root.id, root.limit), (0, 10 << 20));
        assert_eq!(root.of.quota_entry(), "userquota@");
        let none = limit("projectobjquota@7", "none").unwrap().unwrap();
        assert_eq!((none.id, none.limit), (7, 0));
        for (name, value, why) in [
            (
                "userquota@no such",
                "1",
                "'userquota@no such' has an invalid user/group name",
            ),
            (
                "userquota@a@b",
                "1",
                "'userquota@a@b' has an invalid user/group name",
            ),
            (
                "projectquota@root",
                "1",
                "'projectquota@root' has an invalid user/group name",
            ),
            ("userused@0", "1", "'userused@0' is readonly"),
            ("groupquota@0", "x", "bad numeric value 'x'"),
        ] {
            assert_eq!(limit(name, value), Some(Err(why.to_owned())), "{name}");
        }
        assert_eq!(limit("quota", "1"), None);
    }
}
