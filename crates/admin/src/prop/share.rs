//! Checks of the options of `sharenfs` and `sharesmb`.
//!
//! Source: OpenZFS lib/libshare/os/linux/nfs.c (`get_linux_shareopts_cb`), smb.c (`smb_validate_shareopts`).

/// Options of exports(5) that are passed on, and OpenZFS's own names for some of them.
const NFS: [&str; 31] = [
    "all_squash",
    "anon",
    "anongid",
    "anonuid",
    "async",
    "auth_nlm",
    "crossmnt",
    "fsid",
    "fsuid",
    "hide",
    "insecure",
    "insecure_locks",
    "mountpoint",
    "mp",
    "no_acl",
    "no_all_squash",
    "no_auth_nlm",
    "no_root_squash",
    "no_subtree_check",
    "no_wdelay",
    "nohide",
    "nosub",
    "refer",
    "replicas",
    "root_mapping",
    "root_squash",
    "secure",
    "secure_locks",
    "subtree_check",
    "sync",
    "wdelay",
];

/// Whether `text` can be the value of `sharenfs`.
#[doc(alias = "nfs_validate_shareopts")]
pub(super) fn is_nfs_options(text: &str) -> bool {
    let is_option = |option: &str| {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match key {
            "sec" => true,
            "ro" | "rw" => are_hosts(value),
            _ => NFS.contains(&key),
        }
    };
    let mut options = text.split(',').filter(|option| !option.is_empty());
    ["on", "off"].contains(&text) || (!text.is_empty() && options.all(is_option))
}

/// Whether the brackets of literal IPv6 addresses are balanced in a list of hosts separated by colons.
fn are_hosts(mut hosts: &str) -> bool {
    loop {
        let Some(literal) = hosts.strip_prefix('[') else {
            match hosts.split_once(':') {
                Some((_, rest)) => hosts = rest,
                None => return true,
            }
            continue;
        };
        let Some((_, rest)) = literal.split_once(']') else {
            return false;
        };
        hosts = match rest.chars().next() {
            None => return true,
            Some(':') => &rest[1..],
            Some('/') => match rest.split_once(':') {
                Some((_, rest)) => rest,
                None => return true,
            },
            Some(_) => return false,
        };
    }
}

/// Whether `text` can be the value of `sharesmb`.
#[doc(alias = "smb_validate_shareopts")]
pub(super) fn is_smb_options(text: &str) -> bool {
    ["on", "off"].contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_nfs_are_those_of_exports() {
        for good in [
            "on",
            "off",
            "ro",
            "rw=@10.0.0.0/8,no_root_squash",
            "sec=krb5,rw=[fe80::1]/64:host:[::1]",
            "anon=0,,async",
        ] {
            assert!(is_nfs_options(good), "{good}");
        }
        for bad in ["", "bogus", "ro,bogus=1", "rw=[fe80::1", "rw=[::1]x"] {
            assert!(!is_nfs_options(bad), "{bad}");
        }
    }

    #[test]
    fn smb_is_on_or_off() {
        assert!(is_smb_options("on") && is_smb_options("off"));
        assert!(!is_smb_options("ro") && !is_smb_options("guest_ok=y"));
    }
}
