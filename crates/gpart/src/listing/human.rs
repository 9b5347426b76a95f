//! Sizes as humanize_number(3) writes them.

/// Bytes as gpart prints them: at most three digits and a letter, one decimal below ten.
#[must_use]
pub fn human(bytes: u64) -> String {
    const LETTERS: [char; 7] = ['B', 'K', 'M', 'G', 'T', 'P', 'E'];
    let (mut quotient, mut remainder, mut step) = (bytes, 0, 0);
    while (quotient >= 1000 || (quotient == 999 && remainder >= 512)) && step + 1 < LETTERS.len() {
        remainder = quotient % 1024;
        quotient /= 1024;
        step += 1;
    }
    let letter = LETTERS[step];
    let tenths = (remainder * 10 + 512) / 1024;
    if step > 0 && (quotient < 9 || (quotient == 9 && tenths < 10)) {
        let (whole, tenth) = (quotient + tenths / 10, tenths % 10);
        return format!("{whole}.{tenth}{letter}");
    }
    let rounded = quotient + (remainder + 512) / 1024;
    format!("{rounded}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_printed_as_by_humanize_number() {
        let check = |bytes: u64, expect: &str| assert_eq!(human(bytes), expect, "{bytes}");
        check(0, "0B");
        check(512, "512B");
        check(999, "999B");
        check(1000, "1.0K");
        check(1023, "1.0K");
        check(118 * 512, "59K");
        check(66584 * 512, "33M");
        check(2_097_152 * 512, "1.0G");
        check(10_486_633 * 512, "5.0G");
        check(29_292_544 * 512, "14G");
        check(3_000_592_982_016, "2.7T");
        check(1_000_204_886_016, "932G");
        check(524_288, "512K");
        check(10 << 20, "10M");
        check((10 << 20) - 1, "10M");
        check(1023 << 10, "1.0M");
        check(u64::MAX, "16E");
    }
}
