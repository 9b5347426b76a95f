use super::*;

#[test]
fn published_measurements_are_reproduced() {
    for profile in crate::profiles() {
        for r in reproduce(profile) {
            let (error, within) = (r.error_percent(), r.published.within_percent);
            let what = &r.published.experiment;
            assert!(
                error.abs() <= within,
                "{}: {what}: {error:.1} %, not within {within} %",
                profile.name
            );
        }
    }
}
