//! Quotas and reservations are enforced.

use base::ErrorKind;

use crate::Place;

const MIB: usize = 1 << 20;

#[test]
fn quotas_stop_writers() {
    for property in ["quota", "refquota"] {
        let place = Place::with_pool("-O compression=off");
        place.zfs(&format!("create -o {property}=10M tank/a"));
        place.write("tank/a", "fits", &vec![1; 8 * MIB]).unwrap();
        place.write("tank/a", "last", &vec![1; 4 * MIB]).unwrap();
        let error = place
            .write("tank/a", "over", &vec![1; 4 * MIB])
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Quota, "{error}");
        place.refused(
            &format!("set {property}=5M tank/a"),
            "cannot set property for 'tank/a': size is less than current used or reserved space",
        );
        place.zfs(&format!("set {property}=none tank/a"));
        place.write("tank/a", "more", &vec![1; 4 * MIB]).unwrap();
        place.verify();
    }
}

#[test]
fn reservations_keep_others_out() {
    let place = Place::with_pool("-O compression=off");
    let available = || -> u64 {
        place
            .zfs("get -Hp -o value available tank")
            .trim_end()
            .parse()
            .unwrap()
    };
    let before = available();
    place.zfs("create -o reservation=100M tank/a");
    place.zfs("create -o refreservation=50M tank/b");
    let taken = before - available();
    assert!((149 << 20..152 << 20).contains(&taken), "{taken}");
    assert_eq!(place.get("usedbyrefreservation", "tank/b"), "50.0M -");
    place.refused(
        "set reservation=1T tank/a",
        "cannot set property for 'tank/a': size is greater than available space",
    );
    place.refused(
        "create -o reservation=1T tank/c",
        "cannot create 'tank/c': out of space",
    );
    assert_eq!(place.names(), "tank tank/a tank/b");
    let history = place.run("zpool history tank").out;
    assert!(history.contains(" tank/b\n"), "{history}");
    assert!(!history.contains("tank/c"), "it was never there: {history}");
    place.verify();
}
