//! Who may connect at a socket of a virtual machine's port: its owner, its group, and the directory that it is in.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use forebay_control::vhost_user::VhostUser;
use forebay_control::{ApiError, ErrorCode};
use nix::unistd::{Group, User};

/// Everybody may write, and only owners may rename and delete.
const WORLD_WRITABLE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// User and group that a socket is given to; `None` is the daemon's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    user: Option<u32>,
    group: Option<u32>,
}

impl Owner {
    /// Looks up names. Numbers need no entry.
    pub(super) fn find(asked: &VhostUser) -> Result<Self, ApiError> {
        let (user, group) = asked.user_and_group();
        let user =
            id(user, "user", |name| User::from_name(name).ok().flatten().map(|user| user.uid.as_raw()));
        let group =
            id(group, "group", |name| Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw()));
        Ok(Self { user: user?, group: group? })
    }

    /// Gives the socket away.
    pub(super) fn own(self, path: &Path) -> Result<(), ApiError> {
        if self == (Self { user: None, group: None }) {
            return Ok(());
        }
        std::os::unix::fs::chown(path, self.user, self.group).map_err(|error| {
            let message = format!("{}: cannot be given to its owner: {error}", path.display());
            let error = ApiError::new(ErrorCode::InvalidValue, message).with_field("owner");
            error.with_remedy(
                "name a group that the daemon's user is a member of (SupplementaryGroups= in its unit) and no user, \
                 or run the daemon as root",
            )
        })
    }
}

fn id(name: &str, what: &str, find: impl Fn(&str) -> Option<u32>) -> Result<Option<u32>, ApiError> {
    if name.is_empty() {
        return Ok(None);
    }
    // The highest number means "as it was" to the kernel.
    let number = name.parse().ok().filter(|number| *number != u32::MAX);
    let Some(found) = number.or_else(|| find(name)) else {
        let error = ApiError::new(ErrorCode::InvalidValue, format!("there is no {what} `{name}`"));
        let error = error.with_field("owner").with_value(name);
        return Err(error.with_remedy(format!("name a {what} of this machine, or give its number")));
    };
    Ok(Some(found))
}

/// Refuses a directory that is not there, or where anybody could put another socket in this one's place.
pub(super) fn check_directory(path: &Path) -> Result<(), ApiError> {
    let Some(directory) = path.parent() else { return Ok(()) };
    let found = std::fs::metadata(directory)
        .map_err(|error| refuse(path, format!("cannot listen in {}: {error}", directory.display())))?;
    if !found.is_dir() {
        return Err(refuse(path, format!("{} is no directory", directory.display())));
    }
    let mode = found.mode() & 0o7777;
    if mode & WORLD_WRITABLE != 0 && mode & STICKY == 0 {
        let message = format!(
            "{}: anybody may replace files in {}, whose mode is {mode:04o}",
            path.display(),
            directory.display()
        );
        let error = ApiError::new(ErrorCode::InvalidValue, message).with_field("vhost_user");
        let error = error.with_value(path.display()).with_limit("a directory where not everybody may write");
        return Err(error.with_remedy(format!("chmod o-w {0}, or chmod +t {0}", directory.display())));
    }
    Ok(())
}

/// A path that cannot be a socket of the switch.
pub(super) fn refuse(path: &Path, message: String) -> ApiError {
    let error = ApiError::new(ErrorCode::InvalidValue, format!("{}: {message}", path.display()));
    let error = error.with_field("vhost_user").with_value(path.display());
    error.with_remedy("choose another path, in a directory that the daemon may write to")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_where_anybody_may_replace_the_socket_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("vm.sock");
        let with_mode = |mode: u32| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(directory.path(), mode).expect("it is ours");
            check_directory(&path)
        };
        for mode in [0o700, 0o755, 0o770, 0o1777] {
            assert_eq!(with_mode(mode), Ok(()), "{mode:o}");
        }
        let refused = with_mode(0o777).expect_err("anybody may write there");
        assert!(refused.message.contains("0777"), "{refused}");
        assert!(refused.remedy.is_some_and(|remedy| remedy.contains("chmod o-w")));
    }

    #[test]
    fn a_directory_that_is_missing_or_none_is_named() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let file = directory.path().join("file");
        std::fs::write(&file, "").expect("it can be written");
        let missing = check_directory(&directory.path().join("missing/vm.sock")).expect_err("it is missing");
        assert!(missing.message.contains("missing: No such file"), "{missing}");
        let none = check_directory(&file.join("vm.sock")).expect_err("it is a file");
        assert!(none.message.contains("is no directory"), "{none}");
    }

    #[test]
    fn numbers_need_no_entry_and_names_do() {
        let owner =
            |owner: &str| Owner::find(&VhostUser { owner: owner.to_owned(), ..VhostUser::new("/run/a") });
        assert_eq!(owner(""), Ok(Owner { user: None, group: None }));
        assert_eq!(owner("root:4711"), Ok(Owner { user: Some(0), group: Some(4711) }));
        assert_eq!(owner(":root"), Ok(Owner { user: None, group: Some(0) }));
        for bad in ["no-such-user", "0:no-such-group", "4294967295"] {
            let refused = owner(bad).expect_err("nobody has this name");
            assert_eq!(refused.field.as_deref(), Some("owner"), "{bad}");
        }
    }
}
