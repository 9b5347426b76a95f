//! Files of the host as disks.

use super::*;

struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, len: u64) -> Self {
        let path = std::env::temp_dir().join(format!("ashift-disk-{name}-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(len).unwrap();
        TempFile(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn writes_can_be_read_back() {
    let file = TempFile::new("rw", 1 << 20);
    let disk = open(&file.0, OpenMode::ReadWrite).unwrap();
    assert_eq!((disk.mediasize(), disk.sectorsize()), (1 << 20, 512));
    let pieces: Vec<Vec<u8>> = (0..1500).map(|n| vec![n as u8; 512]).collect();
    let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    disk.execute(4096, Command::Write(&slices)).unwrap();
    disk.flush().unwrap();
    let mut back = vec![0; 1500 * 512];
    disk.read(4096, &mut back).unwrap();
    assert!(back == pieces.concat());
    disk.delete(4096, 65536).unwrap();
    disk.read(4096, &mut back).unwrap();
    assert!(back[..65536].iter().all(|byte| *byte == 0));
    assert!(back[65536..] == pieces.concat()[65536..]);
}

#[test]
fn writers_are_alone_and_readers_are_not() {
    let file = TempFile::new("lock", 1 << 20);
    let reader = open(&file.0, OpenMode::ReadOnly).unwrap();
    let other = open(&file.0, OpenMode::ReadOnly).unwrap();
    let busy = open(&file.0, OpenMode::ReadWrite).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert!(busy.to_string().contains("in use"), "{busy}");
    drop((reader, other));
    let writer = open(&file.0, OpenMode::ReadWrite).unwrap();
    assert_eq!(
        open(&file.0, OpenMode::ReadOnly).unwrap_err().kind(),
        ErrorKind::Busy
    );
    let inspector = open(&file.0, OpenMode::Inspect).unwrap();
    writer.write(0, &[1; 512]).unwrap();
    let mut back = [0; 512];
    inspector.read(0, &mut back).unwrap();
    assert_eq!(back, [1; 512]);
    assert_eq!(
        inspector.write(0, &back).unwrap_err().kind(),
        ErrorKind::ReadOnly
    );
}

/// The descriptor that a child holds between fork and exec.
#[test]
fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
    let file = TempFile::new("copy", 1 << 20);
    let disk = open_disk(&file.0, OpenMode::ReadWrite, "disk").unwrap();
    let copy = disk.fd.try_clone().unwrap();
    assert!(open(&file.0, OpenMode::ReadOnly).is_err());
    drop(disk);
    open(&file.0, OpenMode::ReadWrite).unwrap();
    drop(copy);
}

#[test]
fn says_what_is_wrong_with_a_path() {
    let error = open(Path::new("/nonexistent/disk"), OpenMode::ReadOnly).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error.to_string().starts_with("/nonexistent/disk: "),
        "{error}"
    );
    let error = open(&std::env::temp_dir(), OpenMode::ReadOnly).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn an_image_of_which_parts_are_elsewhere_is_refused() {
    let image = TempFile::new("packed", 1 << 20);
    let mut log = image.0.as_os_str().to_owned();
    log.push(PACKED_SUFFIX);
    std::fs::write(&log, "packed1\n").unwrap();
    let error = open(&image.0, OpenMode::Inspect).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    std::fs::remove_file(&log).unwrap();
    open(&image.0, OpenMode::Inspect).unwrap();
}

#[test]
fn a_full_host_is_named() {
    // /dev/full answers every write with "no space"; it is not a block device, so build it by hand.
    let fd = rustix::fs::open("/dev/full", OFlags::RDWR, Mode::empty()).unwrap();
    let disk = Disk {
        name: "full".into(),
        path: "/dev/full".into(),
        fd,
        mode: OpenMode::ReadWrite,
        shape: Shape::new(1 << 20, 512),
        is_block_device: false,
        write_turn: rt::Mutex::new(()),
    };
    let error = disk.write(0, &[0; 512]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("/dev/full"), "{error}");
}
