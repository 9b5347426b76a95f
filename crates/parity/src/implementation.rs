//! Which implementation this processor runs.

use std::sync::OnceLock;

use crate::solve::{Matrix, matrix};
use crate::{DATA_MAX, PARITY_MAX, scalar, segment};

/// A way to compute parity that this processor has. All give the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "raidz_impl_ops_t")]
pub struct Implementation(Isa);

/// The instructions that an implementation uses. Only [`Implementation::available`] makes one that needs
/// more than any processor has, after it has asked the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Ssse3,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    GfniAvx2,
    #[cfg(target_arch = "x86_64")]
    Avx512bw,
    #[cfg(target_arch = "x86_64")]
    GfniAvx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// Calls a function of the module of an implementation.
macro_rules! dispatch {
    ($isa:expr, $function:ident($($argument:expr),*)) => {
        match $isa {
            Isa::Scalar => scalar::$function($($argument),*),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the value exists, so the processor has these instructions.
            Isa::Ssse3 => unsafe { crate::x86::ssse3::$function($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { crate::x86::avx2::$function($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::GfniAvx2 => unsafe { crate::x86::gfni_avx2::$function($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512bw => unsafe { crate::x86::avx512bw::$function($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::GfniAvx512 => unsafe { crate::x86::gfni_avx512::$function($($argument),*) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon => unsafe { crate::neon::$function($($argument),*) },
        }
    };
}

impl Implementation {
    /// All that this processor has, the fastest last.
    #[must_use]
    pub fn available() -> Vec<Implementation> {
        let mut all = vec![Implementation(Isa::Scalar)];
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2");
            let has_gfni = is_x86_feature_detected!("gfni");
            let has_avx512 =
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            let found = [
                (is_x86_feature_detected!("ssse3"), Isa::Ssse3),
                (has_avx2, Isa::Avx2),
                (has_avx512, Isa::Avx512bw),
                (has_gfni && has_avx2, Isa::GfniAvx2),
                (has_gfni && has_avx512, Isa::GfniAvx512),
            ];
            let found = found.into_iter().filter(|(is_found, _)| *is_found);
            all.extend(found.map(|(_, isa)| Implementation(isa)));
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            all.push(Implementation(Isa::Neon));
        }
        all
    }

    /// The one that is used unless another is asked for.
    #[must_use]
    #[doc(alias = "vdev_raidz_math_get_ops")]
    pub fn fastest() -> Implementation {
        static FASTEST: OnceLock<Implementation> = OnceLock::new();
        let last = || Implementation::available().pop();
        *FASTEST.get_or_init(|| last().unwrap_or(Implementation(Isa::Scalar)))
    }

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Ssse3 => "ssse3",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::GfniAvx2 => "gfni-avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512bw => "avx512bw",
            #[cfg(target_arch = "x86_64")]
            Isa::GfniAvx512 => "gfni-avx512",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "neon",
        }
    }

    /// As [`generate`](crate::generate).
    ///
    /// # Panics
    /// As [`generate`](crate::generate).
    pub fn generate(self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        check_count(parity.len(), data.len());
        let len = data[0].len();
        for (n, column) in data.iter().enumerate() {
            check_data_len(n, column.len(), len);
        }
        for (n, column) in parity.iter().enumerate() {
            check_parity_len(n, column.len(), len);
        }
        let mut which = [false; PARITY_MAX];
        which[..parity.len()].fill(true);
        self.generate_these(which, data, parity);
    }

    fn generate_these(self, which: [bool; PARITY_MAX], data: &[&[u8]], parity: &mut [&mut [u8]]) {
        segment::for_each(data, parity, |data, parity| {
            dispatch!(self.0, generate(which, data, parity));
        });
    }

    /// As [`reconstruct`](crate::reconstruct).
    ///
    /// # Panics
    /// As [`reconstruct`](crate::reconstruct).
    pub fn reconstruct(self, nparity: usize, columns: &mut [&mut [u8]], missing: &[usize]) {
        check_count(nparity, columns.len().saturating_sub(nparity));
        let len = columns[nparity].len();
        for (n, column) in columns.iter().enumerate() {
            if n < nparity {
                check_parity_len(n, column.len(), len);
            } else {
                check_data_len(n - nparity, column.len(), len);
            }
        }
        check_missing(missing, nparity, columns.len());
        let (lost_parity, lost_data) = missing.split_at(missing.partition_point(|n| *n < nparity));
        let (parity, data) = columns.split_at_mut(nparity);
        if !lost_data.is_empty() {
            let lost: Vec<usize> = lost_data.iter().map(|n| n - nparity).collect();
            self.reconstruct_data(parity, lost_parity, data, &lost);
        }
        if !lost_parity.is_empty() {
            let mut which = [false; PARITY_MAX];
            for n in lost_parity {
                which[*n] = true;
            }
            let data: Vec<&[u8]> = data.iter().map(|column| &**column).collect();
            let columns = parity.iter_mut().zip(which);
            let lost = columns.filter_map(|(column, is_lost)| is_lost.then_some(&mut **column));
            let mut lost: Vec<&mut [u8]> = lost.collect();
            self.generate_these(which, &data, &mut lost);
        }
    }

    /// Computes data columns by as many of the parities that are left.
    fn reconstruct_data(
        self,
        parity: &[&mut [u8]],
        lost_parity: &[usize],
        data: &mut [&mut [u8]],
        lost: &[usize],
    ) {
        let left = (0..parity.len()).filter(|n| !lost_parity.contains(n));
        let used: Vec<usize> = left.take(lost.len()).collect();
        let matrix = matrix(data.len(), &used, lost);
        let mut which = [false; PARITY_MAX];
        for n in &used {
            which[*n] = true;
        }
        let parity: Vec<&[u8]> = used.iter().map(|n| &*parity[*n]).collect();
        // What is taken leaves an empty column, which counts as zeros.
        let take = |n: &usize| std::mem::take(&mut data[*n]);
        let mut taken: Vec<&mut [u8]> = lost.iter().map(take).collect();
        let rest: Vec<&[u8]> = data.iter().map(|column| &**column).collect();
        self.reconstruct_these(which, &rest, &parity, &mut taken, &matrix);
        for (n, column) in lost.iter().zip(taken) {
            data[*n] = column;
        }
    }

    fn reconstruct_these(
        self,
        which: [bool; PARITY_MAX],
        data: &[&[u8]],
        parity: &[&[u8]],
        missing: &mut [&mut [u8]],
        matrix: &Matrix,
    ) {
        let columns = [parity, data].concat();
        segment::for_each(&columns, missing, |columns, missing| {
            let (parity, data) = columns.split_at(parity.len());
            dispatch!(self.0, reconstruct(which, data, parity, missing, matrix));
        });
    }
}

fn check_count(nparity: usize, data: usize) {
    assert!(
        (1..=PARITY_MAX).contains(&nparity),
        "{nparity} columns of parity"
    );
    assert!((1..=DATA_MAX).contains(&data), "{data} columns of data");
}

fn check_data_len(n: usize, len: usize, first: usize) {
    assert!(
        len <= first,
        "data column {n} has {len} bytes, the first one {first}"
    );
}

fn check_parity_len(n: usize, len: usize, first: usize) {
    assert!(
        len == first,
        "parity column {n} has {len} bytes, the first data column {first}"
    );
}

fn check_missing(missing: &[usize], nparity: usize, columns: usize) {
    assert!(
        missing.len() <= nparity,
        "{} columns are missing, {nparity} can be computed",
        missing.len()
    );
    assert!(missing.is_sorted_by(|a, b| a < b), "{missing:?}");
    let is_column = missing.last().is_none_or(|last| *last < columns);
    assert!(is_column, "{missing:?} of {columns} columns");
}
