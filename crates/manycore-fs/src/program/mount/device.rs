//! The kernel's side: the device `/dev/fuse`, and the call that mounts.

use super::check::Plan;
use crate::program::failure::{Failure, Result};
use crate::program::fuse::Operations;
use crate::program::mount_table::KIND;
use fuser::{Config, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::libc;
use nix::mount::MsFlags;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

const DEVICE: &str = "/dev/fuse";
/// What the mount is named in lists.
const SOURCE: &str = "manycore-fs";

/// Mounts, and shakes hands with the kernel.
pub fn mount(operations: Operations, plan: &Plan) -> Result<Session<Operations>> {
    let mut config = Config::default();
    config.acl = if plan.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(plan.threads);
    // Each thread waits for requests at a file of its own.
    config.clone_fd = true;
    let device = open()?;
    match mount_directly(&device, plan) {
        Ok(()) => Session::from_fd(operations, device.into(), config.acl, config)
            .map_err(|error| Failure::of(&plan.mountpoint, error)),
        Err(Errno::EPERM) => {
            drop(device);
            mount_by_helper(operations, plan, config)
        }
        Err(error) => Err(Failure::of(&plan.mountpoint, format!("mount: {error}"))),
    }
}

fn open() -> Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Failure::new(format!(
                "{DEVICE}: {error}; load the kernel's module (`modprobe fuse`), or give the device \
                 to the container (`--device {DEVICE}`)"
            )),
            Some(libc::EACCES | libc::EPERM) => Failure::new(format!(
                "{DEVICE}: {error}; the user must be allowed to read and write it"
            )),
            _ => Failure::of(DEVICE, error),
        }
    })
}

/// Mounts as root, or as the root of a user namespace.
fn mount_directly(device: &File, plan: &Plan) -> nix::Result<()> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        plan.uid,
        plan.gid
    );
    if plan.allow_other {
        data.push_str(",allow_other");
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    nix::mount::mount(Some(SOURCE), &plan.mountpoint, Some(KIND), flags, Some(data.as_str()))
}

/// Mounts as a user without privileges: by fusermount3, which has them.
fn mount_by_helper(
    operations: Operations,
    plan: &Plan,
    mut config: Config,
) -> Result<Session<Operations>> {
    config.mount_options = vec![
        MountOption::FSName(SOURCE.into()),
        MountOption::Subtype(SOURCE.into()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    Session::new(operations, &plan.mountpoint, &config).map_err(|error| {
        let place = plan.mountpoint.display();
        match error.kind() {
            std::io::ErrorKind::NotFound => Failure::new(format!(
                "{place}: mounting needs root, a user namespace (`unshare -Urm`), or the program \
                 fusermount3 (Debian's package fuse3)"
            )),
            _ => Failure::new(format!("{place}: {}", error.to_string().trim_end())),
        }
    })
}
