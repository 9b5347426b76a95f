//! The allocator of a program that links this crate.
//!
//! # What it is
//! It is jemalloc. What one thread takes, another one frees, txg by txg: glibc's `malloc` searches its lists for most
//! pieces then, and gives memory back only from the end of its heap, unless it is told to go over all of it.
//!
//! A crate of its own, as it is for a program to choose: a test that counts what it takes brings another one.

#[cfg(not(fuzzing))]
mod chosen {
    use tikv_jemallocator::Jemalloc;

    /// Not for fuzz targets: the address sanitizer brings its own.
    #[global_allocator]
    static MALLOC: Jemalloc = Jemalloc;

    /// Jemalloc looks for this. There are few arenas, as each keeps free pages. It keeps them for five seconds, so that
    /// what one txg frees is there for the next.
    // SAFETY: nothing else has this name; it is a pointer to text that ends with a zero, as jemalloc expects.
    #[unsafe(export_name = "_rjem_malloc_conf")]
    static SETTINGS: &[u8; 47] = b"narenas:2,dirty_decay_ms:5000,muzzy_decay_ms:0\0";
}
