//! A word that is not a command gets a one-line error.

use crate::bench::Bench;

#[test]
fn a_typo_is_answered_with_what_may_have_been_meant() {
    let bench = Bench::new(&[]);
    let cases = [
        (
            "zpol list",
            "ashift: unrecognized command 'zpol': did you mean 'zpool'? ('ashift help' lists them all)",
        ),
        (
            "frobnicate",
            "ashift: unrecognized command 'frobnicate' ('ashift help' lists them all)",
        ),
        (
            "machine crate m",
            "ashift machine: unrecognized command 'crate': did you mean 'create'? ('ashift machine \
             help' lists them all)",
        ),
        (
            "lab lst",
            "ashift lab: unrecognized command 'lst': did you mean 'list'? ('ashift lab help' lists \
             them all)",
        ),
        (
            "bench vrify",
            "ashift bench: unrecognized command 'vrify': did you mean 'verify'? ('ashift bench help' \
             lists them all)",
        ),
    ];
    for (command, text) in cases {
        bench.fails(command, 2, text);
    }
    // In the words of the real one, with its usage.
    let (code, _, err) = bench.run("zpool lst");
    assert_eq!(code, 2);
    assert!(
        err.starts_with("unrecognized command 'lst'\nusage: zpool "),
        "{err}"
    );
    for command in ["help", "-q help", "--no-progress machine help"] {
        assert!(bench.ok(command).starts_with("usage: ashift "), "{command}");
    }
}
