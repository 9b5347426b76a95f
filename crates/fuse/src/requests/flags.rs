//! Inode attributes by ioctl: what `chattr`, `lsattr` and `xfs_io -c chproj` use.
//!
//! # Source
//! Linux `include/uapi/linux/fs.h`, `fs/fuse/ioctl.c`; OpenZFS `module/os/linux/zfs/zpl_file.c` (`zpl_ioctl`).

use zerocopy::{FromBytes, IntoBytes};
use zpl::{SetAttr, is_project, pflags};

use super::{Answer, Errno, File, Outcome, Request, file};
use crate::abi::{Fsxattr, IoctlIn, IoctlOut};
use crate::session::Session;

/// `FS_IOC_GETFLAGS`.
const GETFLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`.
const SETFLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`.
const FSGETXATTR: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`.
const FSSETXATTR: u32 = 0x401c_5820;
/// `FITRIM`: free space is deleted by `zpool trim`.
const FITRIM: u32 = 0xc018_5879;

/// Flags here, as `FS_*_FL`, as `FS_XFLAG_*`.
const FLAGS: [(u64, u32, u32); 4] = [
    (pflags::IMMUTABLE, 0x10, 0x08),
    (pflags::APPENDONLY, 0x20, 0x10),
    (pflags::NODUMP, 0x40, 0x80),
    (pflags::PROJINHERIT, 0x2000_0000, 0x200),
];
/// Flags that are shown and cannot be changed: `FS_XFLAG_HASATTR`.
const IGNORED_XFLAGS: u32 = 0x8000_0000;

pub(super) fn ioctl(session: &Session, mut request: Request<'_>) -> Outcome {
    let asked: IoctlIn = request.take()?;
    let given = request.body.get(..asked.in_size as usize);
    let given = given.ok_or(Errno::INVAL)?;
    let file = || file(session, request.header.nodeid);
    match asked.cmd {
        GETFLAGS => {
            let flags = shown(&file()?, |flag| flag.1)?;
            done(flags.as_bytes())
        }
        SETFLAGS => {
            let (flags, _) = u32::read_from_prefix(given).map_err(|_| Errno::INVAL)?;
            set(&file()?, flags, |flag| flag.1, None)?;
            done(&[])
        }
        FSGETXATTR => {
            let file = file()?;
            let answer = Fsxattr {
                xflags: shown(&file, |flag| flag.2)?,
                projid: file.files().getattr(file.id)?.projid as u32,
                ..Fsxattr::default()
            };
            done(answer.as_bytes())
        }
        FSSETXATTR => {
            let (asked, _) = Fsxattr::read_from_prefix(given).map_err(|_| Errno::INVAL)?;
            if !is_project(asked.projid.into()) {
                return Err(Errno::INVAL);
            }
            let flags = asked.xflags & !IGNORED_XFLAGS;
            set(&file()?, flags, |flag| flag.2, Some(asked.projid))?;
            done(&[])
        }
        FITRIM => Err(Errno::OPNOTSUPP),
        _ => Err(Errno::NOTTY),
    }
}

fn done(bytes: &[u8]) -> Outcome {
    let head = IoctlOut::default();
    Ok(Answer::Bytes([head.as_bytes(), bytes].concat().into()))
}

/// The flags of a file, in the numbers that `as_shown` takes from [`FLAGS`].
fn shown(file: &File, as_shown: fn(&(u64, u32, u32)) -> u32) -> Result<u32, Errno> {
    let own = file.files().getattr(file.id)?.pflags;
    let flags = FLAGS.iter().filter(|flag| own & flag.0 != 0);
    Ok(flags.fold(0, |all, flag| all | as_shown(flag)))
}

fn set(
    file: &File,
    flags: u32,
    as_shown: fn(&(u64, u32, u32)) -> u32,
    project: Option<u32>,
) -> Result<(), Errno> {
    let known = FLAGS.iter().fold(0, |all, flag| all | as_shown(flag));
    if flags & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let attr = file.files().getattr(file.id)?;
    let mut own = attr.pflags;
    for flag in &FLAGS {
        own &= !flag.0;
        if flags & as_shown(flag) != 0 {
            own |= flag.0;
        }
    }
    let projid = project.map(u64::from).filter(|id| *id != attr.projid);
    if projid.is_some() && !file.files().objset().props().project_quota {
        return Err(Errno::OPNOTSUPP);
    }
    let set = SetAttr {
        pflags: Some(own).filter(|own| *own != attr.pflags),
        projid,
        ..SetAttr::default()
    };
    file.files().setattr(file.id, &set)?;
    Ok(())
}
